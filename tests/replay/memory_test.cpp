// Reported memory, counted by hand.
#include <doctest/doctest.h>

#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {

TEST_CASE("tokens, numbers and bytes of a script that grows and shrinks") {
  // d = 3, dv = 5. Decode rows 4..7 hold 2, 6, 1 and 3 tokens, the third one with two weights each.
  const auto owned = make_stream({.tokens = 8, .d = 3, .dv = 5});
  const Index kept[] = {2, 6, 1, 3};
  const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
    sketch.clear();
    if (row < 4) return;
    sketch.add_exact(0, kept[row - 4]);
    sketch.bookkeeping = 10 * (row - 3);
  });
  // The most at any decode row, scored or not: row 5 is not.
  const CellResult result = replay_one(owned->stream, 4, algorithm, Params{}, 0, {4, 7});
  const MemoryReport& memory = result.memory;
  CHECK(memory.tokens == 3);
  CHECK(memory.distinct_tokens == 3);
  CHECK(memory.tokens_peak == 6);
  CHECK(memory.vectors == 6);
  CHECK(memory.numbers == 3 * 8);
  CHECK(memory.bookkeeping == 40);
  CHECK(memory.bytes == 3 * 8 * 2 + 40 * 4);
  // Row 4: 32 + 40, row 5: 96 + 80, row 6: 16 + 120, row 7: 48 + 160.
  CHECK(memory.peak_bytes == 208);
  CHECK(memory.exact_bytes == 8 * 8 * 2);
  CHECK(memory.fraction == doctest::Approx(208.0 / 128.0));
}

TEST_CASE("keys without values, values of their own, duplicates and empty places") {
  const auto owned = make_stream({.tokens = 4, .d = 3, .dv = 5});
  const AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    for (const int token : {1, 1, 2, -1}) {
      SketchRow row;
      row.token = token;
      row.w_num = 1.0;
      sketch.add(row);
    }
    SketchRow sample;
    sample.token = 0;
    sample.w_den = 1.0;
    sample.keeps_value = false;
    sample.weight_numbers = 1;
    sketch.add(sample);
    sample.counts_as_token = false;  // a representative
    sketch.add(sample);
  });
  const CellResult result = replay_one(owned->stream, 3, algorithm, Params{});
  CHECK(result.memory.tokens == 4);
  CHECK(result.memory.distinct_tokens == 3);
  CHECK(result.memory.vectors == 5 + 3);
  CHECK(result.memory.numbers == 5 * 3 + 3 * 5);
  CHECK(result.memory.bookkeeping == 2);
}

}  // namespace kvbench::test
