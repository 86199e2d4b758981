// blasst: per row and query head, the blocks whose largest logit comes near the largest so far.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace blasst_test {

Given blasst(double threshold, Index block, const char* share = "head",
             const char* scaling = "fixed") {
  return {{"threshold", Value{threshold}},
          {"block", count_of(block)},
          {"share", word_of(share)},
          {"scaling", word_of(scaling)}};
}

// The rule in plain loops, on logits and logarithms of the C++ library.
Answers naive_blasst(const Stream& stream, Index prompt, double threshold, Index block, bool group,
                     bool by_length) {
  const StreamShape& shape = stream.shape;
  Answers all;
  for (Index row = prompt; row < shape.tokens; ++row) {
    const Index lo = shape.first_visible(row);
    const double lambda =
        by_length ? std::min(1.0, threshold / static_cast<double>(row + 1 - lo)) : threshold;
    std::vector<std::vector<Index>> read(static_cast<std::size_t>(shape.heads_per_kv));
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      double running = -1e300;
      std::vector<double> largest(static_cast<std::size_t>(row / block + 1), -1e300);
      std::vector<double> before(largest.size());
      for (Index token = lo; token <= row; ++token) {
        double dot = 0.0;
        for (Index c = 0; c < shape.d; ++c)
          dot += stream.query(g, row)[c] * stream.keys.row(token)[c];
        dot *= stream.shape.scale;
        if (stream.shape.softcap > 0.0)
          dot = stream.shape.softcap * std::tanh(dot / stream.shape.softcap);
        running = std::max(running, dot);
        const auto b = static_cast<std::size_t>(token / block);
        largest[b] = std::max(largest[b], dot);
        before[b] = running;
      }
      for (Index token = lo; token <= row; ++token) {
        const auto b = static_cast<std::size_t>(token / block);
        if (largest[b] - before[b] < std::log(lambda)) continue;
        for (int h = 0; h < shape.heads_per_kv; ++h) {
          auto& tokens = read[static_cast<std::size_t>(h)];
          if (h == g || (group && std::ranges::find(tokens, token) == tokens.end())) {
            if (std::ranges::find(tokens, token) == tokens.end()) tokens.push_back(token);
          }
        }
      }
    }
    std::vector<std::vector<double>> answers;
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      const auto& tokens = read[static_cast<std::size_t>(g)];
      answers.push_back(
          weighted_answer(stream, g, row, tokens, std::vector<double>(tokens.size(), 1.0)));
    }
    all.push_back(answers);
  }
  return all;
}

TEST_CASE("worked: blocks of two tokens against the largest logit so far") {
  // d = 1 and scale 1: a logit is its key. Blocks: (0, 2) (1, 1.5) (0, -3) (5, 0) (4) of row 8.
  const Rows keys = {{0}, {2}, {1}, {1.5}, {0}, {-3}, {5}, {0}, {4}};
  auto owned = stream_of(keys, Rows(9, {1.0}), {Rows(9, {1})});
  owned->stream.shape.scale = 1.0;
  // ln 0.5 = -0.69: the second block is 0.5 below 2, the third 2, the last 1 below 5.
  CHECK(kept_by("blasst", owned->stream, 8, blasst(0.5, 2)) == KeptSets{{0, 1, 2, 3, 6, 7}});
  // ln 0.3 = -1.2 reads the last block too; ln 0.1 = -2.3 all.
  CHECK(kept_by("blasst", owned->stream, 8, blasst(0.3, 2)) == KeptSets{{0, 1, 2, 3, 6, 7, 8}});
  CHECK(kept_by("blasst", owned->stream, 8, blasst(0.1, 2)).front().size() == 9);
  // At 1 those blocks alone that hold a largest logit so far; over the length, 4.5 / 9 = 0.5.
  CHECK(kept_by("blasst", owned->stream, 8, blasst(1.0, 2)) == KeptSets{{0, 1, 6, 7}});
  CHECK(kept_by("blasst", owned->stream, 8, blasst(4.5, 2, "head", "length")) ==
        KeptSets{{0, 1, 2, 3, 6, 7}});
}

TEST_CASE("answers are those of a plain program") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 6, .dv = 3, .heads_per_kv = 1},
      {.tokens = 50, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 50, .d = 3, .dv = 2, .heads_per_kv = 2, .softcap = 1.0, .query_size = 2}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index block : {1, 7, 60}) {
      for (const double threshold : {0.9, 0.2, 1e-3}) {
        for (const bool group : {false, true}) {
          for (const bool by_length : {false, true}) {
            CAPTURE(block);
            CAPTURE(threshold);
            CAPTURE(group);
            CAPTURE(by_length);
            const double given = by_length ? 40.0 * threshold : threshold;
            check_answers(
                "blasst", owned->stream, 31,
                blasst(given, block, group ? "group" : "head", by_length ? "length" : "fixed"),
                naive_blasst(owned->stream, 31, given, block, group, by_length));
          }
        }
      }
    }
  }
}

TEST_CASE("traffic has every key, and the values of the blocks that are read") {
  const Rows keys = {{0}, {2}, {1}, {1.5}, {0}, {-3}, {5}, {0}, {4}};
  auto owned = stream_of(keys, Rows(9, {1.0}), {Rows(9, {1})});
  owned->stream.shape.scale = 1.0;
  const AlgorithmDescription& algorithm = algorithm_named("blasst");
  const CellResult cell =
      replay_one(owned->stream, 8, algorithm, params_for(algorithm, blasst(0.5, 2)));
  CHECK(cell.memory.bytes == 9 * 2 * 2);
  CHECK(cell.traffic.tokens_read_mean == 6);
  CHECK(cell.traffic.bytes_read_mean == (9 + 6) * 2);
}

TEST_CASE("a fixed threshold above 1, where nothing would be read, is refused") {
  const AlgorithmDescription& algorithm = algorithm_named("blasst");
  const auto error = algorithm.validate(params_for(algorithm, blasst(1.5, 4)));
  REQUIRE(error);
  CHECK(error->first == "threshold");
  CHECK(!algorithm.validate(params_for(algorithm, blasst(1.5, 4, "head", "length"))));
}

}  // namespace blasst_test
}  // namespace kvbench::test
