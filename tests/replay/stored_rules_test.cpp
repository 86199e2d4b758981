// Small stored caches, worked out by hand: what is written when, and what cannot be.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "replay/replay.hpp"
#include "storage/codec_registry.hpp"
#include "support/algorithm_named.hpp"
#include "support/made_codecs.hpp"
#include "support/owned_stream.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace stored_rules_test {

TEST_CASE("what is written stays so where other tokens are dropped") {
  // Tokens 0 to 5 with a residual of 2; dropping 4 leaves four held, of which 2 would be
  // unquantised, but token 3 was written before.
  const auto owned = make_stream({.tokens = 8, .d = 4, .dv = 4});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    if (row < 5) return;
    for (const Index j : {0, 1, 2, 3, 4, 5}) {
      if (row == 5 || j < 4) sketch.add_exact(j, j + 1);
    }
  });
  const CodecDescription codec = step_codec(0.5, 1, 0, late(2));
  const auto storage =
      std::make_shared<const Storage>(Storage{{&codec, Params{}}, {&codec, Params{}}});
  CellResult result;
  replay(owned->stream, {.prompt = 5, .rows = {5, 7}},
         {{&algorithm, {}, 0, nullptr, nullptr, storage}}, cpu_kernels(),
         [&](std::size_t, CellResult&& done) { result = std::move(done); });
  REQUIRE(!result.failed);
  CHECK(result.memory.bytes == 4 * (32 + 32));
}

TEST_CASE("a codec that writes once leaves decoded tokens, also in places of dropped ones") {
  auto owned = make_stream({.tokens = 8, .d = 4, .dv = 4});
  std::fill(owned->keys.begin(), owned->keys.begin() + 4 * 4, 1.0);  // multiples of the step
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    sketch.add_exact(0, 1);
    sketch.add_exact(row == 4 ? 1 : row - 2, row + 1);
  });
  for (const bool once : {false, true}) {
    const CodecDescription codec = step_codec(0.5, 1, 0, of_the_prompt(), once);
    const auto storage = std::make_shared<const Storage>(Storage{{&codec, Params{}}, {}});
    CellResult result;
    replay(owned->stream, {.prompt = 4, .rows = {4, 7}},
           {{&algorithm, {}, 0, nullptr, nullptr, storage}}, cpu_kernels(),
           [&](std::size_t, CellResult&& done) { result = std::move(done); });
    REQUIRE(!result.failed);
    // At row 7 tokens 0, 5, 6 and 7 are held, four as when the prompt ended.
    CHECK((*result.metrics["errors.key_error"] == 0.0) == once);
  }
}

TEST_CASE("a number that a codec cannot write ends the cells that hold it, and no others") {
  const auto owned = make_stream({.tokens = 12, .d = 4, .dv = 4});
  owned->keys[3 * 4 + 1] = 1e5;  // token 3 is beyond binary16
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    sketch.add_exact(4, row + 1);
  });
  const CodecDescription codec = *find_codec("fp16");
  Params params;
  params.set("rotate", std::string("none"));
  const auto storage = std::make_shared<const Storage>(Storage{{&codec, params}, {}});
  std::vector<CellResult> results(2);
  replay(owned->stream, {.prompt = 6, .rows = {6, 11}},
         {{&algorithm, {}, 0, nullptr, nullptr, storage},
          {&algorithm_named("exact"), {}, 0, nullptr, nullptr, storage}},
         cpu_kernels(),
         [&](std::size_t index, CellResult&& done) { results[index] = std::move(done); });
  CHECK_MESSAGE(!results[0].failed, results[0].reason);
  CHECK(results[1].failed);
  CHECK(results[1].reason.find("token 3") != std::string::npos);
}

TEST_CASE("a codec of groups ends the cell of a method that drops tokens, with a reason") {
  const auto owned = make_stream({.tokens = 12, .d = 4, .dv = 4});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    sketch.add_exact(row - 4, row + 1);
  });
  const CodecDescription codec =
      step_codec(0.5, 2, 0, [](Index held, Index) { return held / 2 * 2; });
  const auto storage = std::make_shared<const Storage>(Storage{{&codec, Params{}}, {}});
  CellResult result;
  replay(owned->stream, {.prompt = 6, .rows = {6, 11}},
         {{&algorithm, {}, 0, nullptr, nullptr, storage}}, cpu_kernels(),
         [&](std::size_t, CellResult&& done) { result = std::move(done); });
  CHECK(result.failed);
  CHECK(result.reason.find("written together") != std::string::npos);
}

}  // namespace stored_rules_test
}  // namespace kvbench::test
