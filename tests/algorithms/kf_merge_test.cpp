// kf_merge: the tokens of the method that selects, and keys and values against a dense oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "algorithms/merging_case.hpp"
#include "support/given.hpp"

namespace kvbench::test {
namespace kf_merge_test {

Given merging(Index budget, const std::string& select, const std::string& rule = "pivot") {
  return {{"budget", count_of(budget)}, {"select", word_of(select)}, {"rule", word_of(rule)}};
}

using Vectors = std::vector<std::vector<Real>>;

Vectors matrix(ConstMatrix rows) {
  Vectors out;
  for (Index j = 0; j < rows.rows; ++j) out.emplace_back(rows.row(j), rows.row(j) + rows.cols);
  return out;
}

// As the definition reads, from the kept token's side: the mean of itself and of its means with
// each that is merged into it, or the mean weighted by cosines.
std::vector<Real> naive_merged(const Vectors& vectors, std::size_t kept,
                               const std::vector<std::pair<std::size_t, Real>>& merged,
                               bool pivot) {
  std::vector<Real> out;
  for (std::size_t k = 0; k < vectors[kept].size(); ++k) {
    Real above = vectors[kept][k];
    Real below = 1;
    for (const auto& [token, cosine] : merged) {
      const Real weight = pivot ? 1 : std::max<Real>((cosine + 1) / 2, 1e-6L);
      above += weight * (pivot ? (vectors[token][k] + vectors[kept][k]) / 2 : vectors[token][k]);
      below += weight;
    }
    out.push_back(above / below);
  }
  return out;
}

// Largest difference of the first decode row's sketch to the oracle, by key or value; infinite if
// other rows have vectors of their own. `all`: how many tokens the oracle merged.
double difference(const Stream& stream, Index prompt, const Sketch& sketch, bool pivot) {
  const Vectors keys = matrix(stream.keys);
  const Vectors values = matrix(stream.values);
  std::vector<Index> kept = kept_tokens(sketch);
  kept.pop_back();  // its own token
  std::vector<std::vector<std::pair<std::size_t, Real>>> merged(kept.size());
  for (Index e = std::min(stream.shape.first_visible(prompt), prompt); e < prompt; ++e) {
    if (std::find(kept.begin(), kept.end(), e) != kept.end()) continue;
    const auto token = static_cast<std::size_t>(e);
    std::size_t target = 0;
    Real best = -2;
    for (std::size_t t = 0; t < kept.size(); ++t) {
      const Real cosine = naive_cosine(stream, e, kept[t]);
      if (cosine > best) {
        best = cosine;
        target = t;
      }
    }
    merged[target].emplace_back(token, best);
  }
  Real worst = 0;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    const SketchRow& row = sketch[static_cast<Index>(t)];
    if ((row.own_key >= 0) == merged[t].empty() || row.own_key != row.own_value) return INFINITY;
    if (row.own_key < 0) continue;
    const auto own = static_cast<std::size_t>(row.own_key);
    const auto token = static_cast<std::size_t>(kept[t]);
    for (const auto& [held, all] :
         {std::pair{&sketch.own_keys[own], &keys}, std::pair{&sketch.own_values[own], &values}}) {
      const std::vector<Real> expected = naive_merged(*all, token, merged[t], pivot);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        worst = std::max(worst, std::fabs(expected[k] - static_cast<Real>((*held)[k])));
      }
    }
  }
  return static_cast<double>(worst);
}

TEST_CASE("kf_merge, worked: key and value of a dropped token join those of the nearest key") {
  const auto owned = merging_stream();
  const auto sketch_by = [&](const char* rule) {
    return sketches_of("kf_merge", owned->stream, 10, merging(9, "rkv", rule)).front();
  };
  const Sketch pivot = sketch_by("pivot");
  CHECK(kept_tokens(pivot) == std::vector<Index>{0, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  for (Index p = 0; p < 10; ++p) CHECK((pivot[p].own_key >= 0) == (p == 1));
  // Key: the mean of (0, 1) and ((3, 4) + (0, 1)) / 2 = (1.5, 2.5); value: of 2 and (6 + 2) / 2.
  CHECK(pivot.own_keys == Rows{{0.75, 1.75}});
  CHECK(pivot.own_values == Rows{{3}});
  // w = (.8 + 1) / 2 = .9: (0, 1) + .9 (3, 4) = (2.7, 4.6), 2 + .9 * 6 = 7.4, over 1.9.
  const Sketch weighted = sketch_by("weighted");
  CHECK(weighted.own_keys[0][0] == doctest::Approx(2.7 / 1.9).epsilon(1e-15));
  CHECK(weighted.own_keys[0][1] == doctest::Approx(4.6 / 1.9).epsilon(1e-15));
  CHECK(weighted.own_values[0][0] == doctest::Approx(7.4 / 1.9).epsilon(1e-15));
}

TEST_CASE("kf_merge, worked: an opposite key is merged too, by a weight of 1e-6") {
  // knorm drops token 0, whose key is the longest; of equal cosines the lower token takes it.
  Rows keys = {{-3, 0}};
  Rows values = {{10}};
  for (int j = 0; j < 10; ++j) {
    keys.push_back({1, 0});
    values.push_back({2});
  }
  const auto owned = stream_of(keys, values, {Rows(11, {0, 0})});
  const Sketch sketch =
      sketches_of("kf_merge", owned->stream, 10, merging(9, "knorm", "weighted")).front();
  CHECK(kept_tokens(sketch).front() == 1);
  CHECK(sketch[0].own_key == 0);
  REQUIRE(sketch.own_keys.size() == 1);
  CHECK(sketch.own_keys[0][0] == doctest::Approx((1 - 3e-6) / (1 + 1e-6)).epsilon(1e-15));
  CHECK(sketch.own_values[0][0] == doctest::Approx((2 + 1e-5) / (1 + 1e-6)).epsilon(1e-15));
}

TEST_CASE("kf_merge keeps the selection's tokens, and merges what the dense oracle merges") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 120, .d = 5, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 120, .d = 64, .dv = 2},
      {.tokens = 120, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 90},
      {.tokens = 120, .d = 4, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 120, .d = 4, .dv = 2, .kind = StreamKind::kSomeZeroValues}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const char* select : {"snapkv", "rkv", "knorm"}) {
      for (const Index budget : {34, 60}) {
        for (const bool pivot : {true, false}) {
          CAPTURE(spec.window);
          CAPTURE(std::string(select));
          CAPTURE(budget);
          CAPTURE(pivot);
          const auto rows = sketches_of("kf_merge", owned->stream, 100,
                                        merging(budget, select, pivot ? "pivot" : "weighted"));
          CHECK(kept_sets(rows) ==
                kept_by(select, owned->stream, 100, {{"budget", count_of(budget)}}));
          CHECK(difference(owned->stream, 100, rows.front(), pivot) < 1e-12);
          CHECK(difference(owned->stream, 100, rows.front(), !pivot) > 1e-3);  // the other rule
          CHECK(rows.back()[rows.back().size() - 1].own_key < 0);
        }
      }
    }
  }
}

TEST_CASE("kf_merge is skipped where its selection is; pivot around snapkv is the default") {
  StreamShape shape = make_stream({.tokens = 120, .d = 4, .dv = 2})->stream.shape;
  CHECK(skip_of("kf_merge", shape, 100, merging(33, "snapkv")).empty());
  CHECK(!skip_of("kf_merge", shape, 100, merging(32, "snapkv")).empty());
  shape.first_query = 70;
  CHECK(!skip_of("kf_merge", shape, 100, merging(40, "snapkv")).empty());
  CHECK(skip_of("kf_merge", shape, 100, merging(40, "rkv")).empty());
  const auto owned = make_stream({.tokens = 120, .d = 4, .dv = 2});
  CHECK(same_sketch(
      sketches_of("kf_merge", owned->stream, 100, {{"budget", count_of(40)}}).front(),
      sketches_of("kf_merge", owned->stream, 100, merging(40, "snapkv", "pivot")).front()));
}

}  // namespace kf_merge_test
}  // namespace kvbench::test
