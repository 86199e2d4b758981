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
  CHECK(tried_lengths(64) == std::vector<Index>{64});
  CHECK(tried_lengths(255) == std::vector<Index>{255});
  CHECK(tried_lengths(256) == std::vector<Index>{128, 256});
  CHECK(tried_lengths(2049) == std::vector<Index>{128, 256, 512, 1024, 2049});
}

TEST_CASE("the time at full length has a part for the length and one for its square") {
  // 3 f + 8 f^2 at an eighth and a quarter.
  CHECK(time_at_full_length({0.125, 0.5}, {0.25, 1.25}) == doctest::Approx(11.0));
  CHECK(time_at_full_length({0.125, 0.5}, {0.25, 1.0}) == doctest::Approx(4.0));
  CHECK(time_at_full_length({0.125, 0.125}, {0.25, 0.5}) == doctest::Approx(8.0));
  // A shorter one that took longer in proportion, or next to nothing, makes neither part negative.
  CHECK(time_at_full_length({0.125, 0.75}, {0.25, 1.0}) == doctest::Approx(4.0));
  CHECK(time_at_full_length({0.125, 0.0}, {0.25, 0.5}) == doctest::Approx(8.0));
  // One length alone is taken for quadratic; the full length is what it took.
  CHECK(time_at_full_length({}, {0.25, 0.5}) == doctest::Approx(8.0));
  CHECK(time_at_full_length({0.5, 0.1}, {1.0, 3.0}) == doctest::Approx(3.0));
  CHECK(time_at_full_length({}, {1.0, 3.0}) == doctest::Approx(3.0));
}

}  // namespace short_replay_test
}  // namespace kvbench::test
