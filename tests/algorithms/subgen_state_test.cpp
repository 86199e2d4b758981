// SubGen's state at every step: mu (I1), Lemma 2 (1)-(4) (I5), weights, memory (I9), clusters.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/algorithm_named.hpp"
#include "support/naive_rules.hpp"
#include "support/naive_subgen.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"
#include "support/subgen_parts.hpp"

namespace kvbench::test {
namespace {

using Given = std::vector<std::pair<std::string, Value>>;

Value integer(Index value) { return Value{static_cast<std::int64_t>(value)}; }
Value word(const char* value) { return Value{std::string(value)}; }

Params subgen(const Given& given) { return params_for(algorithm_named("subgen"), given); }

Stepper start(const Stream& stream, Index prompt, const Given& given, std::uint32_t seed = 0) {
  return Stepper(stream, prompt, algorithm_named("subgen"), subgen(given), seed);
}

// The part of a stream that entered the reservoirs at row `row`: tokens [sinks, row - recent].
struct Entered {
  std::unique_ptr<OwnedStream> owned;
  Index first = 0;
  Index count = 0;
};

Entered entered(const Stream& stream, Index row, Index sinks, Index recent) {
  Entered out;
  out.first = sinks;
  out.count = std::max<Index>(0, row + 1 - recent - sinks);
  out.owned = truncated(stream, stream.shape.tokens);
  out.owned->keys.erase(out.owned->keys.begin(), out.owned->keys.begin() + sinks * stream.shape.d);
  out.owned->values.erase(out.owned->values.begin(),
                          out.owned->values.begin() + sinks * stream.shape.dv);
  for (auto& q : out.owned->queries) q.erase(q.begin(), q.begin() + sinks * stream.shape.d);
  out.owned->stream.shape.tokens -= sinks;
  out.owned->connect();
  return out;
}

struct Point {
  double delta;
  Index t;
  Index s;
  Index sinks;
  Index recent;
};

double weight_of(const Stream& stream, Index token, const std::string& sampling) {
  if (sampling == "v2") return squared_norm(stream.values, token);
  if (sampling == "v1") return std::sqrt(squared_norm(stream.values, token));
  if (sampling == "k2") return squared_norm(stream.keys, token);
  return 1.0;
}

// Lemma 2 (1)-(4), Lemma 1 (1), the estimator's weights and the memory formula at one row.
void check_state(const Stream& stream, const Sketch& sketch, Index row, const Point& point,
                 const std::string& sampling) {
  const Entered part = entered(stream, row, point.sinks, point.recent);
  const NaiveSubgen naive = naive_clusters(part.owned->stream, part.count, point.delta);
  const SubgenParts parts = subgen_parts(sketch);
  const std::size_t m = naive.clusters.size();

  // Representatives, and so the clusters, are those of the rule.
  REQUIRE(parts.representatives.size() == m);
  for (std::size_t c = 0; c < m; ++c) {
    REQUIRE(parts.representatives[c] == naive.clusters[c].representative + part.first);
  }
  // Lemma 2 from the definitions, not from the naive run.
  Index members = 0;
  for (std::size_t c = 0; c < m; ++c) {
    const NaiveSubgen::Cluster& cluster = naive.clusters[c];
    members += cluster.count;
    CHECK(std::count(cluster.members.begin(), cluster.members.end(), cluster.representative) == 1);
    for (const Index member : cluster.members) {
      CHECK(naive_distance(part.owned->stream.keys, member, cluster.representative) <= point.delta);
    }
    for (std::size_t other = 0; other < c; ++other) {
      CHECK(naive_distance(stream.keys, parts.representatives[c], parts.representatives[other]) >
            point.delta);
    }
  }
  CHECK(members == part.count);

  // t samples per cluster, members of it, each weighing n_i / t: Lemma 2 (2) through the weights.
  REQUIRE(parts.samples.size() == m * static_cast<std::size_t>(point.t));
  std::vector<std::int64_t> samples(m, 0);
  for (const WeightedToken& sample : parts.samples) {
    REQUIRE(sample.token >= part.first);
    REQUIRE(sample.token < part.first + part.count);
    const std::size_t c = static_cast<std::size_t>(
        naive.assignment[static_cast<std::size_t>(sample.token - part.first)]);
    ++samples[c];
    const double weight =
        static_cast<double>(naive.clusters[c].count) / static_cast<double>(point.t);
    CHECK(std::fabs(sample.w_den - weight) <= 1e-15 * weight);
    CHECK(sample.w_num == 0.0);
  }
  for (const std::int64_t count : samples) CHECK(count == point.t);

  // mu = sum of weights (I1), read off every slot: w_num = mu / (s w).
  long double mu = 0;
  for (Index j = part.first; j < part.first + part.count; ++j) {
    mu += weight_of(stream, j, sampling);
  }
  REQUIRE(static_cast<Index>(parts.slots.size()) == (mu > 0 ? point.s : 0));
  for (const WeightedToken& slot : parts.slots) {
    REQUIRE(slot.token >= part.first);
    REQUIRE(slot.token < part.first + part.count);
    const double w = weight_of(stream, slot.token, sampling);
    REQUIRE(w > 0.0);
    const double recovered = slot.w_num * static_cast<double>(point.s) * w;
    CHECK(std::fabs(recovered - static_cast<double>(mu)) <= 1e-12 * static_cast<double>(mu));
  }

  // Sinks and recent tokens stand exactly once, with weight 1 in both sums.
  std::set<Index> expected;
  for (Index j = 0; j < std::min(point.sinks, row + 1); ++j) expected.insert(j);
  for (Index j = std::max(point.sinks, row + 1 - point.recent); j <= row; ++j) expected.insert(j);
  std::set<Index> exact;
  for (const WeightedToken& held : parts.exact) {
    CHECK(held.w_num == doctest::Approx(1.0).epsilon(1e-15));
    CHECK(held.w_den == 1.0);
    CHECK(exact.insert(held.token).second);
  }
  CHECK(exact == expected);

  // Memory (I9): d (m' (t + 1) + s) + dv s numbers and m' + 1 for bookkeeping; null slots nothing.
  const Index clusters = static_cast<Index>(m);
  const Index slots = static_cast<Index>(parts.slots.size());
  const Index exact_count = static_cast<Index>(expected.size());
  const Holdings held = sketch.holdings();
  CHECK(held.tokens == clusters * point.t + slots + exact_count);
  CHECK(held.keys == clusters * (point.t + 1) + slots + exact_count);
  CHECK(held.values == slots + exact_count);
  CHECK(held.bookkeeping == clusters + 1);
}

}  // namespace

TEST_CASE("worked: six keys on a line, delta 1") {
  // 0 opens; 1 joins it (distance exactly 1); 5 opens; 2 is 2 from 0 and 3 from 5: opens; 6 joins
  // 5; 0.4 joins 0 (distance 0.4, and 1.6 from 2).
  const auto owned = stream_of({{0}, {1}, {5}, {2}, {6}, {0.4}}, {{1}, {2}, {0}, {3}, {1}, {2}},
                               {{{1}, {1}, {1}, {1}, {1}, {1}}});
  Stepper stepper =
      start(owned->stream, 0, {{"delta", Value{1.0}}, {"t", integer(2)}, {"s", integer(3)}});
  const double mu[] = {1, 5, 5, 14, 15, 19};  // running sums of squared values
  const std::vector<std::vector<Index>> opened = {{0},       {0},       {0, 2},
                                                  {0, 2, 3}, {0, 2, 3}, {0, 2, 3}};
  const std::vector<std::vector<double>> counts = {{1},       {2},       {2, 1},
                                                   {2, 1, 1}, {2, 2, 1}, {3, 2, 1}};
  for (std::size_t row = 0; row < 6; ++row) {
    REQUIRE(stepper.next());
    const SubgenParts parts = subgen_parts(stepper.sketch());
    CHECK(parts.representatives == opened[row]);
    REQUIRE(parts.samples.size() == 2 * opened[row].size());
    for (std::size_t c = 0; c < opened[row].size(); ++c) {
      CHECK(parts.samples[2 * c].w_den == counts[row][c] / 2.0);
      CHECK(parts.samples[2 * c + 1].w_den == counts[row][c] / 2.0);
    }
    REQUIRE(parts.slots.size() == 3);
    for (const WeightedToken& slot : parts.slots) {
      const double value = owned->stream.values(slot.token, 0);
      CHECK(slot.token != 2);  // its value is zero
      CHECK(slot.w_num == doctest::Approx(mu[row] / (3.0 * value * value)).epsilon(1e-14));
    }
  }
  const auto clusters = stepper.algorithm().clusters();
  REQUIRE(clusters);
  CHECK(clusters->final_count == 3);
  // After row P = 0, after rows that are powers of two, after row 5.
  CHECK(clusters->trajectory ==
        std::vector<std::pair<Index, Index>>{{0, 1}, {1, 1}, {2, 2}, {4, 3}, {5, 3}});
}

TEST_CASE("slots stay null while every value is zero, and hold no zero value afterwards") {
  const auto owned = stream_of({{0}, {1}, {2}, {3}}, {{0}, {0}, {2}, {0}}, {{{1}, {1}, {1}, {1}}});
  Stepper stepper =
      start(owned->stream, 0, {{"delta", Value{9.0}}, {"t", integer(1)}, {"s", integer(2)}});
  const Index filled[] = {0, 0, 2, 2};
  for (const Index expected : filled) {
    REQUIRE(stepper.next());
    const SubgenParts parts = subgen_parts(stepper.sketch());
    CHECK(static_cast<Index>(parts.slots.size()) == expected);
    for (const WeightedToken& slot : parts.slots) {
      CHECK(slot.token == 2);
      CHECK(slot.w_num == doctest::Approx(0.5).epsilon(1e-15));  // mu / (s w) = 4 / (2 * 4)
    }
    CHECK(stepper.sketch().holdings().values == expected);
  }
}

TEST_CASE("Lemma 1 (1), Lemma 2 (1)-(4), weights and memory hold at every step") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 3, .dv = 5},
      {.tokens = 60, .d = 4, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 50, .d = 2, .dv = 2, .kind = StreamKind::kTies},
      {.tokens = 40, .d = 3, .dv = 2, .kind = StreamKind::kEqualKeys},
      {.tokens = 40, .d = 3, .dv = 2, .kind = StreamKind::kZeroValues},
      {.tokens = 40, .d = 3, .dv = 4, .kind = StreamKind::kSomeZeroValues}};
  const Point points[] = {{0.0, 1, 1, 0, 0}, {1.0, 3, 8, 0, 0}, {2.0, 2, 5, 0, 0},
                          {1e9, 4, 3, 0, 0}, {1.5, 2, 4, 5, 0}, {1.5, 2, 4, 0, 6},
                          {1.5, 2, 4, 3, 7}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Point& point : points) {
      for (const Index prompt : {0, 20}) {
        CAPTURE(static_cast<int>(spec.kind));
        CAPTURE(point.delta);
        CAPTURE(point.sinks);
        CAPTURE(point.recent);
        Stepper stepper = start(owned->stream, prompt,
                                {{"delta", Value{point.delta}},
                                 {"t", integer(point.t)},
                                 {"s", integer(point.s)},
                                 {"sinks", integer(point.sinks)},
                                 {"recent", integer(point.recent)}},
                                static_cast<std::uint32_t>(prompt + 3));
        while (stepper.next()) {
          check_state(owned->stream, stepper.sketch(), stepper.row(), point, "v2");
        }
      }
    }
  }
}

TEST_CASE("other sampling weights: mu and slots follow ||v||, ||k||^2 or 1") {
  const auto owned = make_stream({.tokens = 40, .d = 3, .dv = 5});
  for (const char* sampling : {"v1", "k2", "uniform"}) {
    CAPTURE(std::string(sampling));
    const Point point{1.0, 2, 6, 0, 0};
    Stepper stepper = start(owned->stream, 10,
                            {{"delta", Value{point.delta}},
                             {"t", integer(point.t)},
                             {"s", integer(point.s)},
                             {"sampling", word(sampling)}});
    while (stepper.next()) {
      check_state(owned->stream, stepper.sketch(), stepper.row(), point, sampling);
    }
  }
}

TEST_CASE("delta_quantile resolves to the quantile of key distances and is recorded") {
  const auto owned = make_stream({.tokens = 200, .d = 4, .dv = 2, .kind = StreamKind::kClustered});
  for (const double quantile : {0.0, 0.05, 0.3, 1.0}) {
    Stepper stepper =
        start(owned->stream, 190,
              {{"delta_quantile", Value{quantile}}, {"t", integer(2)}, {"s", integer(3)}});
    const double delta = derived_real(stepper.algorithm().derived(), "delta");
    const double naive = naive_delta_quantile(owned->stream, quantile);
    CHECK(std::fabs(delta - naive) <= 1e-14 * naive);
    REQUIRE(stepper.next());
    const NaiveSubgen clusters = naive_clusters(owned->stream, 191, delta);
    CHECK(subgen_parts(stepper.sketch()).representatives.size() == clusters.clusters.size());
  }
}

TEST_CASE("the alias clustergen is subgen") {
  CHECK(find_algorithm("clustergen") == find_algorithm("subgen"));
}

TEST_CASE("a sliding layer is skipped, with that reason") {
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  const Params params = subgen({{"delta", Value{1.0}}, {"t", integer(1)}, {"s", integer(1)}});
  StreamShape shape = make_stream({.tokens = 30, .window = 10})->stream.shape;
  const auto reason = reason_to_skip(algorithm, params, shape, 20);
  REQUIRE(reason);
  CHECK(reason->find("window") != std::string::npos);
  shape.window = 30;  // never slides
  CHECK(!reason_to_skip(algorithm, params, shape, 20));
}

}  // namespace kvbench::test
