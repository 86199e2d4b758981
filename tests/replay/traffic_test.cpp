// Reported traffic and density, counted by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "kernels/kernels.hpp"
#include "support/made_codecs.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {

TEST_CASE("a method that evicts reads what it holds, over the scored rows alone") {
  // d = 3, dv = 5, two bytes a number. Rows 4 and 7 hold 2 and 3 tokens, row 5 would be the most.
  const auto owned = make_stream({.tokens = 8, .d = 3, .dv = 5});
  const Index kept[] = {2, 6, 1, 3};
  const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
    sketch.clear();
    if (row < 4) return;
    sketch.add_exact(0, kept[row - 4]);
    sketch.bookkeeping = 10 * (row - 3);
  });
  const TrafficReport traffic =
      replay_one(owned->stream, 4, algorithm, Params{}, 0, {4, 7}).traffic;
  CHECK(traffic.tokens_read_mean == 2.5);
  CHECK(traffic.tokens_read_max == 3);
  CHECK(traffic.bytes_read_mean == (2 * 16 + 40 + 3 * 16 + 160) / 2.0);
  CHECK(traffic.bytes_read_max == 3 * 16 + 160);
  CHECK(traffic.fraction == doctest::Approx((72.0 / (5 * 16) + 208.0 / (8 * 16)) / 2));
  CHECK(traffic.density == doctest::Approx((2.0 / 5 + 3.0 / 8) / 2));
}

TEST_CASE("exact attention reads all, with density 1, also where a window slides") {
  for (const Index window : {0, 6}) {
    const auto owned = make_stream({.tokens = 20, .d = 4, .dv = 4, .window = window});
    const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
      sketch.clear();
      sketch.add_exact(owned->stream.shape.first_visible(row), row + 1);
    });
    const TrafficReport traffic = replay_one(owned->stream, 10, algorithm, Params{}).traffic;
    CHECK(traffic.fraction == 1.0);
    CHECK(traffic.density == 1.0);
    CHECK(traffic.tokens_read_max == (window > 0 ? 6 : 20));
  }
}

TEST_CASE("a value that weighs nothing is not summed; a value of its own is") {
  const auto owned = make_stream({.tokens = 4, .d = 3, .dv = 5});
  const AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    sketch.own_values.assign(1, std::vector<double>(5, 1.0));
    SketchRow unsummed;
    unsummed.token = 0;
    unsummed.w_den = 1.0;
    sketch.add(unsummed);
    SketchRow merged = SketchRow::exact(1);
    merged.own_value = 0;
    sketch.add(merged);
    sketch.add_exact(2, 3);
  });
  const TrafficReport traffic = replay_one(owned->stream, 3, algorithm, Params{}).traffic;
  CHECK(traffic.density == 2.0 / 4);
  CHECK(traffic.tokens_read_mean == 3);
}

TEST_CASE("of a method that keeps all, what query heads share is read once, and its lookup") {
  const auto owned = make_stream({.tokens = 10, .d = 4, .dv = 2, .heads_per_kv = 2});
  AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    for (const int head : {0, 1}) {
      for (const int token : {3, 4 + head}) {
        SketchRow row = SketchRow::exact(token);
        row.head = static_cast<std::int16_t>(head);
        sketch.add(row);
      }
    }
    sketch.lookup = {.held_numbers = 7, .held_bits = 9, .read_numbers = 5, .read_bits = 3};
  });
  algorithm.never_evicts = [](const Params&) { return true; };
  const CellResult result = replay_one(owned->stream, 9, algorithm, Params{});
  // Tokens 3, 4 and 5, each of 6 numbers of 2 bytes; 5 numbers and 3 bits, in a byte.
  CHECK(result.traffic.tokens_read_mean == 3);
  CHECK(result.traffic.bytes_read_max == 3 * 6 * 2 + 5 * 2 + 1);
  CHECK(result.traffic.fraction == doctest::Approx(47.0 / (10 * 6 * 2)));
  CHECK(result.traffic.density == doctest::Approx(2.0 / 10));
  CHECK(result.memory.lookup_bytes == 7 * 2 + 2);
  CHECK(result.memory.bytes == result.memory.exact_bytes + 16);
  CHECK(result.memory.peak_bytes == result.memory.exact_bytes + 16);
}

TEST_CASE("of a method that keeps all, a vector of its own that several rows share is read once") {
  const auto owned = make_stream({.tokens = 10, .d = 4, .dv = 2, .heads_per_kv = 2});
  AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    sketch.own_keys.assign(1, std::vector<double>(4, 0.5));
    sketch.own_values.assign(2, std::vector<double>(2, 1.0));
    sketch.add_exact(3, 4);
    for (const int head : {0, 1}) {
      SketchRow row = SketchRow::exact(3);
      row.head = static_cast<std::int16_t>(head);
      row.own_key = row.own_value = 0;  // the second value is read by none
      sketch.add(row);
    }
  });
  algorithm.never_evicts = [](const Params&) { return true; };
  const CellResult result = replay_one(owned->stream, 9, algorithm, Params{});
  CHECK(result.traffic.bytes_read_max == (4 + 2 + 4 + 2) * 2);
  CHECK(result.traffic.tokens_read_mean == 1);
}

TEST_CASE("an exact sum reads every visible token") {
  const auto owned = make_stream({.tokens = 6, .d = 4, .dv = 2});
  const AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    sketch.add_exact(0, 2);
    sketch.exact_numerator = true;
  });
  const TrafficReport traffic = replay_one(owned->stream, 5, algorithm, Params{}).traffic;
  CHECK(traffic.fraction == 1.0);
  CHECK(traffic.density == 1.0);
  CHECK(traffic.tokens_read_max == 6);
}

TEST_CASE("a row's traffic counts what it reads as it is stored") {
  // d = 4, dv = 2: 3 + 4 * 8 bytes a key and 5 + 2 * 8 a value; two bytes an unquantised number.
  const auto owned = make_stream({.tokens = 10, .d = 4, .dv = 2, .heads_per_kv = 2});
  AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    for (const int head : {0, 1}) {
      for (const int token : {3, 8 + head}) {
        SketchRow row = SketchRow::exact(token);
        row.head = static_cast<std::int16_t>(head);
        sketch.add(row);
      }
    }
  });
  const CodecDescription keys = step_codec(0.5, 1, 3, on_arrival());
  const CodecDescription values =
      step_codec(0.5, 1, 5, [](Index held, Index) { return std::max<Index>(0, held - 2); });
  const auto storage =
      std::make_shared<const Storage>(Storage{{&keys, Params{}}, {&values, Params{}}});
  const auto replayed = [&] {
    CellResult result;
    replay(owned->stream, {.prompt = 9, .rows = {9}},
           {{&algorithm, {}, 0, nullptr, nullptr, storage}}, cpu_kernels(),
           [&](std::size_t, CellResult&& done) { result = std::move(done); });
    REQUIRE_MESSAGE(!result.failed, result.reason);
    return result;
  };
  // Evicting, it holds tokens 3, 8 and 9 in four rows: the last two of the values unquantised.
  CHECK(replayed().traffic.bytes_read_max == 4 * 35 + 2 * 21 + 2 * 4);
  // Keeping all, keys and values that both heads read are read once; tokens 8 and 9 are the newest.
  algorithm.never_evicts = [](const Params&) { return true; };
  CHECK(replayed().traffic.bytes_read_max == 3 * 35 + 21 + 2 * 4);
  CHECK(replayed().memory.bytes == 10 * 35 + 8 * 21 + 2 * 4);
}

TEST_CASE("numbers of held keys that a row reads to choose are as wide as the keys are stored") {
  // d = 4, dv = 2: a written key has 35 bytes, an unquantised one 8.
  const auto owned = make_stream({.tokens = 10, .d = 4, .dv = 2});
  AlgorithmDescription algorithm = scripted([](Index, Sketch& sketch) {
    sketch.clear();
    sketch.add_exact(9, 10);
    sketch.lookup = {.read_key_numbers = 20};  // two of each key's four
  });
  algorithm.never_evicts = [](const Params&) { return true; };
  const auto read = [&](const CodecDescription* keys) {
    const auto storage = std::make_shared<const Storage>(Storage{{keys, Params{}}, {}});
    CellResult result;
    replay(owned->stream, {.prompt = 9, .rows = {9}},
           {{&algorithm, {}, 0, nullptr, nullptr, keys == nullptr ? nullptr : storage}},
           cpu_kernels(), [&](std::size_t, CellResult&& done) { result = std::move(done); });
    REQUIRE_MESSAGE(!result.failed, result.reason);
    return result.traffic.bytes_read_max;
  };
  CHECK(read(nullptr) == 6 * 2 + 20 * 2);
  const CodecDescription at_once = step_codec(0.5, 1, 3, on_arrival());
  CHECK(read(&at_once) == 35 + 2 * 2 + 10 * 35 / 2);
  const CodecDescription late =
      step_codec(0.5, 1, 3, [](Index held, Index) { return std::max<Index>(0, held - 3); });
  CHECK(read(&late) == 6 * 2 + (7 * 35 + 3 * 8 + 1) / 2);  // whole bytes
}

}  // namespace kvbench::test
