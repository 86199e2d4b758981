// loki: the best tokens by principal components, or by channels, of the keys.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace loki_test {

Given loki(const NaiveLoki& p) {
  return {{"budget", count_of(p.budget)},
          {"rank", count_of(p.rank)},
          {"basis", word_of(p.basis)},
          {"centre", Value{p.centre}},
          {"label_bits", count_of(p.label_bits)},
          {"recent", count_of(p.recent)},
          {"share", word_of(p.group ? "group" : "head")}};
}

TEST_CASE("worked: keys along one axis but for one token that only the query's other axis sees") {
  // The component of the prompt's keys is (1, 0): of the query (1, 3) it sees 1, so that token 3 of
  // the exact logits 1 -1 2 6 0 is overlooked: its first number is 0.
  const Rows keys = {{1, 0}, {-1, 0}, {2, 0}, {0, 2}, {0, 0}};
  const auto owned = stream_of(keys, Rows(5, {1.0}), {Rows(5, {1, 3})});
  NaiveLoki p{.budget = 2, .rank = 1};
  // Tokens from the prompt's end on do not matter to the basis.
  CHECK(kept_by("loki", owned->stream, 3, loki(p)) == KeptSets{{0, 2}, {0, 2}});
  p.recent = 1;
  CHECK(kept_by("loki", owned->stream, 3, loki(p)) == KeptSets{{2, 3}, {2, 4}});
  // Channels: |q_c k_c| of the prompt sums to 4 and 0.
  p = {.budget = 2, .rank = 1, .basis = "channels"};
  CHECK(kept_by("loki", owned->stream, 3, loki(p)) == KeptSets{{0, 2}, {0, 2}});
  p.rank = 2;
  CHECK(kept_by("loki", owned->stream, 3, loki(p)) == KeptSets{{2, 3}, {2, 3}});
}

TEST_CASE("answers are those of a plain program with a library's eigenvectors") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 1, .rope_pairs = 3},
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 3, .rope_pairs = 2},
      {.tokens = 40,
       .d = 6,
       .dv = 3,
       .heads_per_kv = 2,
       .window = 17,
       .rope_pairs = 3,
       .rope_interleaved = true},
      {.tokens = 40,
       .d = 5,
       .dv = 2,
       .heads_per_kv = 2,
       .softcap = 1.0,
       .query_size = 2,
       .rope_pairs = 1}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index rank : {Index{1}, Index{3}, spec.d}) {
      for (const Index budget : {1, 9, 60}) {
        std::vector<NaiveLoki> settings;
        for (const bool group : {false, true}) {
          settings.push_back({.budget = budget, .rank = rank, .group = group});
          settings.push_back({.budget = budget, .rank = rank, .basis = "channels", .group = group});
        }
        settings.push_back({.budget = budget,
                            .rank = rank,
                            .centre = false,
                            .recent = std::min<Index>(budget, 4)});
        settings.push_back({.budget = budget, .rank = rank, .basis = "pca_pre"});
        settings.push_back({.budget = budget, .rank = rank, .basis = "channels", .label_bits = 4});
        for (const NaiveLoki& p : settings) {
          CAPTURE(rank);
          CAPTURE(budget);
          CAPTURE(p.basis);
          CAPTURE(p.group);
          CAPTURE(p.label_bits);
          check_answers("loki", owned->stream, 25, loki(p), naive_loki(owned->stream, 25, p));
        }
      }
    }
  }
}

TEST_CASE("memory and traffic: components are read from the keys, labels are held besides") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const AlgorithmDescription& algorithm = algorithm_named("loki");
  const auto cell = [&](const NaiveLoki& p) {
    return replay_one(owned->stream, 23, algorithm, params_for(algorithm, loki(p)));
  };
  const CellResult components = cell({.budget = 5, .rank = 3});
  CHECK(components.memory.bytes == 24 * 6 * 2);
  CHECK(components.traffic.bytes_read_mean == 3 * (24 - 5) * 2 + 5 * 6 * 2);
  const CellResult labels = cell({.budget = 5, .rank = 3, .basis = "channels", .label_bits = 4});
  CHECK(labels.memory.lookup_bytes == (24 * 3 * 4 + 24 * 32) / 8);
  CHECK(labels.traffic.bytes_read_mean == (24 * 3 * 4 + 24 * 32) / 8 + 5 * 6 * 2);
  CHECK(derived_real(components.derived, "gap") > 0.0);
  // The basis, 4 by 4, and which of 4 channels are chosen, are not part of memory.
  CHECK(components.memory.shared_bytes == 4 * 4 * 2);
  CHECK(components.memory.fraction == 1.0);
  CHECK(labels.memory.shared_bytes == 1);
}

TEST_CASE("on a sliding layer the lookup is of the tokens that the row sees") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1, .window = 10});
  const AlgorithmDescription& algorithm = algorithm_named("loki");
  const auto cell = [&](const NaiveLoki& p) {
    return replay_one(owned->stream, 20, algorithm, params_for(algorithm, loki(p)));
  };
  CHECK(cell({.budget = 5, .rank = 3}).traffic.bytes_read_mean == 3 * (10 - 5) * 2 + 5 * 6 * 2);
  const CellResult labels = cell({.budget = 5, .rank = 3, .basis = "channels", .label_bits = 4});
  CHECK(labels.memory.lookup_bytes == (10 * 3 * 4 + 10 * 32) / 8);
  CHECK(labels.traffic.bytes_read_mean == (10 * 3 * 4 + 10 * 32) / 8 + 5 * 6 * 2);
}

TEST_CASE("scores that overflow fail the cell") {
  const Rows keys(5, {1e200, 1e200});
  const auto opposite =
      stream_of(keys, Rows(5, {1.0}), {Rows(5, {1e200, 1e200}), Rows(5, {-1e200, -1e200})});
  CHECK_THROWS_WITH_AS(kept_by("loki", opposite->stream, 3,
                               loki({.budget = 2, .rank = 2, .basis = "channels", .group = true})),
                       "scores of tokens overflow", CellError);
  const auto owned = stream_of(keys, Rows(5, {1.0}), {Rows(5, {1e200, -1e200})});
  CHECK_THROWS_WITH_AS(
      kept_by("quest", owned->stream, 3, {{"budget", count_of(3)}, {"page", count_of(1)}}),
      "scores of tokens overflow", CellError);
  CHECK_THROWS_WITH_AS(
      kept_by("sparq", owned->stream, 3,
              {{"rank", count_of(2)}, {"k", count_of(2)}, {"recent", count_of(0)}}),
      "scores of tokens overflow", CellError);
}

TEST_CASE("a basis without data is skipped, impossible label bits are refused") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  const NaiveLoki p{.budget = 5, .rank = 4};
  CHECK(skip_of("loki", shape, 20, loki(p)).empty());
  CHECK(skip_of("loki", shape, 0, loki(p)).find("empty") != std::string::npos);
  StreamShape narrow = shape;
  narrow.window = 1;
  CHECK(skip_of("loki", narrow, 20, loki(p)).find("empty") != std::string::npos);
  CHECK(skip_of("loki", shape, 20, loki({.budget = 5, .rank = 4, .recent = 5})).empty());
  CHECK(skip_of("loki", shape, 20, loki({.budget = 5, .rank = 4, .recent = 6})).find("no room") !=
        std::string::npos);
  CHECK(skip_of("loki", shape, 20, loki({.budget = 40, .rank = 4, .recent = 50})).empty());
  CHECK(skip_of("loki", shape, 20, loki({.budget = 5, .rank = 5})).find("4 dimensions") !=
        std::string::npos);
  CHECK(
      skip_of("loki", shape, 20, loki({.budget = 5, .rank = 4, .basis = "pca_pre"})).find("RoPE") !=
      std::string::npos);
  const AlgorithmDescription& algorithm = algorithm_named("loki");
  for (const auto& [basis, bits] :
       {std::pair<std::string, Index>{"pca", 4}, {"channels", 8}, {"pca", 0}}) {
    const auto error = algorithm.validate(
        params_for(algorithm, loki({.budget = 5, .rank = 4, .basis = basis, .label_bits = bits})));
    REQUIRE(error);
    CHECK(error->first == "label_bits");
  }
}

}  // namespace loki_test
}  // namespace kvbench::test
