// merge_cosine: the tokens of the method that selects, and values against a dense oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "algorithms/merging_case.hpp"
#include "support/given.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace merge_cosine_test {

Given merging(Index budget, const std::string& select, double threshold = 0.0) {
  return {
      {"budget", count_of(budget)}, {"select", word_of(select)}, {"threshold", number(threshold)}};
}

// Values of `kept` after the other visible tokens of the prompt were merged into them.
std::vector<std::vector<Real>> naive_merged(const Stream& stream, Index prompt,
                                            const std::vector<Index>& kept, double threshold) {
  const Index dv = stream.shape.dv;
  std::vector<std::vector<Real>> sums;
  std::vector<Real> weights(kept.size(), 0);
  for (const Index token : kept) {
    sums.emplace_back(stream.values.row(token), stream.values.row(token) + dv);
  }
  for (Index e = std::min(stream.shape.first_visible(prompt), prompt); e < prompt; ++e) {
    if (std::find(kept.begin(), kept.end(), e) != kept.end()) continue;
    std::size_t target = 0;
    for (std::size_t t = 1; t < kept.size(); ++t) {
      if (naive_cosine(stream, e, kept[t]) > naive_cosine(stream, e, kept[target])) target = t;
    }
    const Real cosine = naive_cosine(stream, e, kept[target]);
    if (cosine < threshold) continue;
    const Real of_e = length_of(stream.values.row(e), dv);
    const Real of_target = length_of(stream.values.row(kept[target]), dv);
    const Real weight = std::max<Real>(cosine, 0) * of_e / (of_e + of_target + 1e-6L);
    weights[target] += weight;
    for (Index k = 0; k < dv; ++k) {
      sums[target][k] += weight * stream.values(e, k);
    }
  }
  for (std::size_t t = 0; t < kept.size(); ++t) {
    for (Real& value : sums[t]) value /= 1 + weights[t];
  }
  return sums;
}

double value_of(const Sketch& sketch, const Stream& stream, const SketchRow& row, Index k) {
  const auto own = static_cast<std::size_t>(row.own_value);
  return row.own_value < 0 ? stream.values(row.token, k) : sketch.own_values[own][k];
}

// The largest difference in the first decode row's sketch, its own token apart.
double difference(const Stream& stream, Index prompt, const Sketch& sketch, double threshold) {
  std::vector<Index> kept = kept_tokens(sketch);
  kept.pop_back();
  const auto naive = naive_merged(stream, prompt, kept, threshold);
  double worst = 0.0;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    for (Index k = 0; k < stream.shape.dv; ++k) {
      const Real apart = value_of(sketch, stream, sketch[static_cast<Index>(t)], k) - naive[t][k];
      worst = std::max(worst, static_cast<double>(std::fabs(apart)));
    }
  }
  return worst;
}

TEST_CASE("merge_cosine, worked: a dropped value goes to the nearest key, by cosine and length") {
  // Lengths 6 and 2: w = .8 * 6 / (8 + 1e-6) = .6; (2 + .6 * 6) / 1.6 = 3.5. Window 32 of snapkv is
  // more than this prompt.
  const auto owned = merging_stream();
  const Sketch sketch = sketches_of("merge_cosine", owned->stream, 10, merging(9, "rkv")).front();
  CHECK(kept_tokens(sketch) == std::vector<Index>{0, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(sketch[0].own_value < 0);
  // The 1e-6 of the sum of lengths moves it by 1.2e-7.
  CHECK(value_of(sketch, owned->stream, sketch[1], 0) == doctest::Approx(3.5).epsilon(1e-6));
  for (Index p = 2; p < 10; ++p) CHECK(sketch[p].own_value < 0);
  // A threshold above the cosine leaves all values.
  const Sketch plain =
      sketches_of("merge_cosine", owned->stream, 10, merging(9, "rkv", 0.81)).front();
  for (const SketchRow& row : plain.rows()) CHECK(row.own_value < 0);
}

TEST_CASE("merge_cosine keeps the selection's tokens, and merges what the dense oracle merges") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 120, .d = 5, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 120, .d = 64, .dv = 2},
      {.tokens = 120, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 90},
      {.tokens = 120, .d = 4, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 120, .d = 4, .dv = 2, .kind = StreamKind::kSomeZeroValues}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const char* select : {"snapkv", "rkv"}) {
      for (const Index budget : {34, 60}) {
        for (const double threshold : {0.0, 0.5, 0.9}) {
          CAPTURE(spec.window);
          CAPTURE(std::string(select));
          CAPTURE(budget);
          CAPTURE(threshold);
          const Given given = merging(budget, select, threshold);
          const auto rows = sketches_of("merge_cosine", owned->stream, 100, given);
          CHECK(kept_sets(rows) ==
                kept_by(select, owned->stream, 100, {{"budget", count_of(budget)}}));
          CHECK(difference(owned->stream, 100, rows.front(), threshold) < 1e-12);
          CHECK(rows.back()[rows.back().size() - 1].own_value < 0);
        }
      }
    }
  }
  // Cosines of 64 dimensions are small: the oracle of a threshold above them merges nothing.
  const auto owned = make_stream(specs[1]);
  const Sketch sketch =
      sketches_of("merge_cosine", owned->stream, 100, merging(34, "snapkv")).front();
  CHECK(difference(owned->stream, 100, sketch, 0.8) > 1e-3);
}

TEST_CASE("merge_cosine counts what it merged, and is exact with a budget of the prompt") {
  const auto owned = make_stream({.tokens = 120, .d = 4, .dv = 3, .heads_per_kv = 2});
  const AlgorithmDescription& merge = algorithm_named("merge_cosine");
  const auto replayed = [&](Index budget, double threshold) {
    return replay_one(owned->stream, 100, merge,
                      params_for(merge, merging(budget, "snapkv", threshold)));
  };
  CHECK(*replayed(100, 0.0).metrics["errors.relative_l2.max"] < 1e-12);
  CHECK(*replayed(99, 0.0).metrics["errors.relative_l2.max"] > 1e-9);
  CHECK(derived_real(replayed(40, 0.0).derived, "merged") == 60);
  CHECK(derived_real(replayed(40, 1.0).derived, "merged") == 0);
  // It stores what the selection stores.
  CHECK(replayed(40, 0.0).memory.peak_bytes == replayed(40, 1.0).memory.peak_bytes);
  CHECK(replayed(40, 0.0).memory.bookkeeping == 0);
}

TEST_CASE("merge_cosine is skipped where its selection is") {
  StreamShape shape = make_stream({.tokens = 120, .d = 4, .dv = 2})->stream.shape;
  CHECK(skip_of("merge_cosine", shape, 100, merging(33, "snapkv")).empty());
  CHECK(!skip_of("merge_cosine", shape, 100, merging(32, "snapkv")).empty());
  CHECK(skip_of("merge_cosine", shape, 100, merging(32, "rkv")).empty());
  shape.first_query = 70;
  CHECK(!skip_of("merge_cosine", shape, 100, merging(40, "snapkv")).empty());
  CHECK(skip_of("merge_cosine", shape, 100, merging(40, "rkv")).empty());
  const auto owned = make_stream({.tokens = 120, .d = 4, .dv = 2});
  const auto defaults = sketches_of("merge_cosine", owned->stream, 100, {{"budget", count_of(40)}});
  CHECK(
      same_sketch(defaults.front(),
                  sketches_of("merge_cosine", owned->stream, 100, merging(40, "snapkv")).front()));
}

}  // namespace merge_cosine_test
}  // namespace kvbench::test
