// sparq: the best tokens by some channels of the query, the mean value for the rest.
#include <doctest/doctest.h>

#include <cmath>

#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace sparq_test {

Given sparq(Index rank, Index k, Index recent, bool mean_value = true) {
  return {{"rank", count_of(rank)},
          {"k", count_of(k)},
          {"recent", count_of(recent)},
          {"mean_value", Value{mean_value}}};
}

TEST_CASE("worked: one channel of two, one token besides the own") {
  // Query (3, 1): channel 0 with coverage 3/4, so that logits are sqrt(4/3) 3 k_0 / scale..: keys
  // (0,9) (ln 2 / c, 0) (0,0), c = 3 sqrt(4/3), give approximate weights 1, 2, 1.
  const double c = 3.0 * std::sqrt(4.0 / 3.0);
  const Rows keys = {{0, 9}, {std::log(2.0) / c, 0}, {0, 0}};
  const Rows values = {{1.0}, {2.0}, {6.0}};
  const auto owned = stream_of(keys, values, {Rows(3, {3, 1})});
  // Tokens 1 and 2 are read, alpha = 3/4, the mean value is 3. The exact logit of token 1 is
  // 3 ln 2 / c, its weight w = 2^(3/c).
  const double w = std::pow(2.0, 3.0 / c);
  const double read = (2.0 * w + 6.0) / (w + 1.0);
  const auto all = sketches_of("sparq", owned->stream, 2, sparq(1, 1, 0));
  REQUIRE(all.size() == 1);
  CHECK(kept_tokens(all.front()) == std::vector<Index>{1, 2});
  CHECK(library_answer(owned->stream, 0, 2, all.front()).answer.front() ==
        doctest::Approx(0.75 * read + 0.25 * 3.0).epsilon(1e-14));
  const auto without = sketches_of("sparq", owned->stream, 2, sparq(1, 1, 0, false));
  CHECK(library_answer(owned->stream, 0, 2, without.front()).answer.front() ==
        doctest::Approx(read).epsilon(1e-14));
}

TEST_CASE("answers are those of a plain program") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 1},
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 40, .d = 3, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kTies},
      {.tokens = 40, .d = 3, .dv = 2, .heads_per_kv = 2, .softcap = 1.0, .query_size = 2}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index rank : {Index{1}, Index{2}, spec.d}) {
      for (const auto& [k, recent] : {std::pair<Index, Index>{1, 0}, {8, 3}, {8, 8}, {60, 5}}) {
        for (const bool mean_value : {true, false}) {
          for (const Index prompt : {0, 25}) {
            CAPTURE(rank);
            CAPTURE(k);
            CAPTURE(mean_value);
            check_answers("sparq", owned->stream, prompt, sparq(rank, k, recent, mean_value),
                          naive_sparq(owned->stream, prompt, {rank, k, recent, mean_value}));
          }
        }
      }
    }
  }
}

TEST_CASE("where the chosen tokens' share underflows, the mean value is answered") {
  // Channel 0 decides: by it token 0 is 2000 ahead. But the row's own token is read whatever its
  // rank, and of recent 1 the one before it: their share is e^-2000.
  const Rows keys = {{2000, 0}, {0, 1}, {0, 2}};
  const Rows values = {{3.0, 0.0}, {0.0, 6.0}, {0.0, 0.0}};
  const auto owned = stream_of(keys, values, {Rows(3, {1, 0})});
  const auto all = sketches_of("sparq", owned->stream, 2, sparq(1, 1, 1));
  REQUIRE(all.size() == 1);
  const Answer answer = library_answer(owned->stream, 0, 2, all.front());
  CHECK(answer.answer[0] == doctest::Approx(1.0).epsilon(1e-14));
  CHECK(answer.answer[1] == doctest::Approx(2.0).epsilon(1e-14));
}

TEST_CASE("answers of huge logits are finite") {
  const auto owned = make_stream(
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 2, .kind = StreamKind::kHugeLogits});
  for (const Index rank : {1, 3}) {
    const auto all = sketches_of("sparq", owned->stream, 20, sparq(rank, 2, 2));
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (int g = 0; g < 2; ++g) {
        const Answer answer = library_answer(owned->stream, g, 20 + static_cast<Index>(r), all[r]);
        for (const double each : answer.answer) CHECK(std::isfinite(each));
      }
    }
  }
}

TEST_CASE("memory has keys twice and the mean value; a row reads some channels of every key") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const AlgorithmDescription& algorithm = algorithm_named("sparq");
  const CellResult cell =
      replay_one(owned->stream, 23, algorithm, params_for(algorithm, sparq(3, 7, 2)));
  CHECK(cell.memory.bytes == (24 * 6 + 24 * 4 + 2) * 2);
  CHECK(cell.traffic.bytes_read_mean == (3 * 24 + 8 * 6 + 2) * 2);
  CHECK(cell.traffic.tokens_read_mean == 8);
}

TEST_CASE("more recent tokens than k, more channels than a key and a sliding layer are refused") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  CHECK(skip_of("sparq", shape, 20, sparq(4, 8, 2)).empty());
  CHECK(skip_of("sparq", shape, 20, sparq(5, 8, 2)).find("4 channels") != std::string::npos);
  shape.window = 10;
  CHECK(skip_of("sparq", shape, 20, sparq(4, 8, 2)).find("sliding") != std::string::npos);
  const AlgorithmDescription& algorithm = algorithm_named("sparq");
  const auto error = algorithm.validate(params_for(algorithm, sparq(4, 8, 9)));
  REQUIRE(error);
  CHECK(error->first == "recent");
}

}  // namespace sparq_test
}  // namespace kvbench::test
