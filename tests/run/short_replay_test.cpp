#include "estimate/short_replay.hpp"

#include <doctest/doctest.h>

namespace kvbench::test {
namespace short_replay_test {

std::vector<Index> range(Index first, Index end) {
  std::vector<Index> rows;
  for (Index row = first; row < end; ++row) rows.push_back(row);
  return rows;
}

StreamShape tokens(Index count) {
  StreamShape shape;
  shape.tokens = count;
  return shape;
}

TEST_CASE("all tokens are the replay itself, with the pass that repeats the prompt") {
  StreamShape shape = tokens(100);
  shape.repeat = std::make_shared<RepeatPass>();
  const ShortReplay all = short_replay(shape, 40, {7, 99}, 100);
  CHECK(all.shape.tokens == 100);
  CHECK(all.shape.repeat == shape.repeat);
  CHECK(all.prompt == 40);
  CHECK(all.rows == std::vector<Index>{7, 99});
  CHECK(short_replay(shape, 40, {7, 99}, 50).shape.repeat == nullptr);
}

TEST_CASE("prompt, queries and rows are cut in proportion") {
  StreamShape shape = tokens(100);
  shape.first_query = 60;
  const ShortReplay half = short_replay(shape, 80, range(80, 100), 50);
  CHECK(half.shape.tokens == 50);
  CHECK(half.shape.first_query == 30);
  CHECK(half.prompt == 40);
  CHECK(half.rows == range(40, 50));
  // One of four rows at the end is there at a quarter of the length, the last.
  CHECK(short_replay(tokens(100), 80, range(96, 100), 25).rows == std::vector<Index>{24});
}

TEST_CASE("no row moves from the prompt to what is decoded, or out of the stream") {
  for (const Index prompt : {1, 33, 50, 99}) {
    for (const Index length : {3, 10, 50, 99}) {
      const ShortReplay cut = short_replay(tokens(100), prompt, range(0, 100), length);
      CAPTURE(prompt);
      CAPTURE(length);
      CHECK(cut.prompt >= 0);
      CHECK(cut.prompt < length);
      REQUIRE(!cut.rows.empty());
      CHECK(cut.rows.front() >= 0);
      CHECK(cut.rows.back() == length - 1);
      const ShortReplay of_prompt = short_replay(tokens(100), prompt, range(0, prompt), length);
      for (const Index row : of_prompt.rows) CHECK(row < cut.prompt);
    }
  }
  // Scored rows of a stream that has no decode row stay in the prompt.
  CHECK(short_replay(tokens(100), 100, {98, 99}, 50).prompt == 50);
}

TEST_CASE("lengths are tried from one or two hundred tokens on") {
  CHECK(tried_lengths(64, 64) == std::vector<Index>{64});
  CHECK(tried_lengths(255, 64) == std::vector<Index>{255});
  CHECK(tried_lengths(256, 64) == std::vector<Index>{128, 256});
  CHECK(tried_lengths(2049, 64) == std::vector<Index>{128, 256, 512, 1024, 2049});
  CHECK(tried_lengths(2049, 128) == std::vector<Index>{256, 512, 1024, 2049});
}

TEST_CASE("the time at full length has a part for the length and one for its square") {
  // 3 f + 8 f^2 at an eighth and a quarter.
  CHECK(time_at_full_length({{0.125, 0.5}, {0.25, 1.25}}) == doctest::Approx(11.0));
  CHECK(time_at_full_length({{0.125, 0.5}, {0.25, 1.0}}) == doctest::Approx(4.0));
  CHECK(time_at_full_length({{0.125, 0.125}, {0.25, 0.5}}) == doctest::Approx(8.0));
  // One length alone is taken for quadratic; the full length is what it took.
  CHECK(time_at_full_length({{0.25, 0.5}}) == doctest::Approx(8.0));
  CHECK(time_at_full_length({{0.5, 0.1}, {1.0, 3.0}}) == 3.0);
  CHECK(time_at_full_length({}) == 0.0);
  CHECK(time_at_full_length({{0.125, 0.0}, {0.25, 0.0}}) == 0.0);
}

TEST_CASE("four lengths tell a constant part as well, and no part is negative") {
  // 2 + 3 f + 8 f^2.
  const auto at = [](double f) { return TimeAtLength{f, 2.0 + 3.0 * f + 8.0 * f * f}; };
  CHECK(time_at_full_length({at(0.0625), at(0.125), at(0.25), at(0.5)}) ==
        doctest::Approx(13.0).epsilon(0.001));
  // One that takes less in proportion as it grows is linear if it is short: noise may explain it.
  const double linear = time_at_full_length({{0.125, 0.0075}, {0.25, 0.01}});
  CHECK(linear > 0.04);
  CHECK(linear < 0.06);
  CHECK(time_at_full_length({{0.125, 0.75}, {0.25, 1.0}}) == doctest::Approx(2.5));
  CHECK(time_at_full_length({{0.0625, 1.0}, {0.125, 1.0}, {0.25, 1.0}, {0.5, 1.0}}) ==
        doctest::Approx(1.0).epsilon(0.001));
}

TEST_CASE("one length that took twice as long among five changes the whole by less than half") {
  std::vector<TimeAtLength> times;
  for (const double f : {0.00390625, 0.0078125, 0.015625, 0.03125, 0.0625}) {
    times.push_back({f, 5.0 * f});
  }
  CHECK(time_at_full_length(times) == doctest::Approx(5.0));
  times[2].seconds *= 2.0;
  const double whole = time_at_full_length(times);
  CHECK(whole > 2.5);
  CHECK(whole < 7.5);
}

TEST_CASE("a part is begun only if its predicted time is left") {
  CHECK(may_start(0.0, 100.0, -1.0));  // the two shortest always
  CHECK(may_start(1.0, 4.0, 20.0));    // their growth and a quarter
  CHECK_FALSE(may_start(1.0, 4.0, 19.9));
  CHECK_FALSE(may_start(1.0, 1.0, 2.9));      // three times at least
  CHECK_FALSE(may_start(1.0, 100.0, 799.0));  // and a cube at most
  CHECK(may_start(1.0, 100.0, 800.0));
}

TEST_CASE("numbers of tokens are cut in proportion, other parameters are not") {
  using Kind = Parameter::Kind;
  const auto row = [](const char* name, Kind kind, double minimum) {
    Parameter made;
    made.name = name;
    made.kind = kind;
    made.minimum = minimum;
    return made;
  };
  std::vector<Parameter> table = {row("budget", Kind::kTokens, 1), row("recent", Kind::kTokens, 3),
                                  row("part", Kind::kTokens, 0), row("kernel", Kind::kInteger, 1),
                                  row("T", Kind::kInteger, 1)};
  table[4].takes_memory = table[4].is_halvings = true;
  Params params;
  params.set("budget", MemoryBudget{0.1, 1000});
  params.set("recent", std::int64_t{8});
  params.set("part", 0.25);
  params.set("kernel", std::int64_t{7});
  params.set("T", std::int64_t{5});
  const Params cut = short_params(table, params, 0.25);
  CHECK(cut.at("budget") == Value(MemoryBudget{0.1, 250}));
  CHECK(cut.at("recent") == Value(std::int64_t{3}));  // no less than its minimum
  for (const char* name : {"part", "kernel", "T"}) CHECK(cut.at(name) == params.at(name));
  CHECK(short_params(table, params, 1.0) == params);
  params.set("recent", std::int64_t{0});  // a minimum that an earlier one was below
  CHECK(short_params(table, params, 0.5).at("recent") == Value(std::int64_t{0}));
}

}  // namespace short_replay_test
}  // namespace kvbench::test
