// SubGen's state at every step: mu (I1), Lemma 2 (1)-(4) (I5), weights, memory (I9), clusters.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "support/given.hpp"
#include "support/naive_rules.hpp"
#include "support/naive_subgen.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"
#include "support/subgen_parts.hpp"

namespace kvbench::test {
namespace subgen_state_test {

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

// The fault of a state at one row, by Lemma 2 (1)-(4), Lemma 1 (1), the estimator's weights and the
// memory formula; "" where there is none.
std::string error_of_state(const Stream& stream, const SubgenParts& parts, const KeptCounts& kept,
                           Index row, const Point& point, const std::string& sampling) {
  const Entered part = entered(stream, row, point.sinks, point.recent);
  const NaiveSubgen naive = naive_clusters(part.owned->stream, part.count, point.delta);
  const std::size_t m = naive.clusters.size();

  // Representatives, and so the clusters, are those of the rule.
  if (parts.representatives.size() != m) return "as many representatives as clusters";
  for (std::size_t c = 0; c < m; ++c) {
    if (parts.representatives[c] != naive.clusters[c].representative + part.first) {
      return "another representative";
    }
  }
  // Lemma 2 from the definitions, not from the naive run.
  Index members = 0;
  for (std::size_t c = 0; c < m; ++c) {
    const NaiveSubgen::Cluster& cluster = naive.clusters[c];
    members += cluster.count;
    if (std::count(cluster.members.begin(), cluster.members.end(), cluster.representative) != 1) {
      return "a representative outside of its cluster";
    }
    for (const Index member : cluster.members) {
      if (naive_distance(part.owned->stream.keys, member, cluster.representative) > point.delta) {
        return "a member beyond delta";
      }
    }
    for (std::size_t other = 0; other < c; ++other) {
      if (naive_distance(stream.keys, parts.representatives[c], parts.representatives[other]) <=
          point.delta) {
        return "two representatives within delta";
      }
    }
  }
  if (members != part.count) return "clusters that are not a partition";

  // t samples per cluster, members of it, each weighing n_i / t: Lemma 2 (2) through the weights.
  if (parts.samples.size() != m * static_cast<std::size_t>(point.t)) return "m' t samples";
  std::vector<std::int64_t> samples(m, 0);
  for (const WeightedToken& sample : parts.samples) {
    if (sample.token < part.first || sample.token >= part.first + part.count) {
      return "a sample that did not enter";
    }
    const std::size_t c = static_cast<std::size_t>(naive.assignment[sample.token - part.first]);
    ++samples[c];
    const double weight =
        static_cast<double>(naive.clusters[c].count) / static_cast<double>(point.t);
    if (!(std::fabs(sample.w_den - weight) <= 1e-15 * weight)) return "a sample not of n_i / t";
    if (sample.w_num != 0.0) return "a sample in the numerator";
  }
  for (const std::int64_t count : samples) {
    if (count != point.t) return "a sample of another cluster";
  }

  // mu = sum of weights (I1), read off every slot: w_num = mu / (s w).
  long double mu = 0;
  for (Index j = part.first; j < part.first + part.count; ++j) {
    mu += weight_of(stream, j, sampling);
  }
  if (std::ssize(parts.slots) != (mu > 0 ? point.s : 0)) return "s slots";
  for (const WeightedToken& slot : parts.slots) {
    if (slot.token < part.first || slot.token >= part.first + part.count) {
      return "a slot that did not enter";
    }
    const double w = weight_of(stream, slot.token, sampling);
    if (!(w > 0.0)) return "a slot of weight 0";
    const double recovered = slot.w_num * static_cast<double>(point.s) * w;
    if (!(std::fabs(recovered - static_cast<double>(mu)) <= 1e-12 * static_cast<double>(mu))) {
      return "another mu";
    }
  }

  // Sinks and recent tokens occur exactly once, with weight 1 in both sums.
  std::set<Index> expected;
  for (Index j = 0; j < std::min(point.sinks, row + 1); ++j) expected.insert(j);
  for (Index j = std::max(point.sinks, row + 1 - point.recent); j <= row; ++j) expected.insert(j);
  std::set<Index> exact;
  for (const WeightedToken& token : parts.exact) {
    if (std::fabs(token.w_num - 1.0) > 1e-15 || token.w_den != 1.0)
      return "an exact token not of 1";
    if (!exact.insert(token.token).second) return "an exact token twice";
  }
  if (exact != expected) return "other exact tokens";

  // Memory (I9): d (m' (t + 1) + s) + dv s numbers and m' + 1 for bookkeeping; null slots nothing.
  const Index clusters = static_cast<Index>(m);
  const Index slots = std::ssize(parts.slots);
  const Index exact_count = std::ssize(expected);
  const KeptCounts counted = {.tokens = clusters * point.t + slots + exact_count,
                              .keys = clusters * (point.t + 1) + slots + exact_count,
                              .values = slots + exact_count,
                              .pairs = slots + exact_count,
                              .bookkeeping = clusters + 1};
  return kept == counted ? "" : "memory beside the formula";
}

void check_state(const Stream& stream, const Sketch& sketch, Index row, const Point& point,
                 const std::string& sampling) {
  CHECK(error_of_state(stream, subgen_parts(sketch), sketch.kept_counts(), row, point, sampling) ==
        "");
}

TEST_CASE("worked: six keys on a line, delta 1") {
  // 0 opens; 1 joins it (distance exactly 1); 5 opens; 2 is 2 from 0 and 3 from 5: opens; 6 joins
  // 5; 0.4 joins 0 (distance 0.4, and 1.6 from 2).
  const auto owned = stream_of({{0}, {1}, {5}, {2}, {6}, {0.4}}, {{1}, {2}, {0}, {3}, {1}, {2}},
                               {{{1}, {1}, {1}, {1}, {1}, {1}}});
  Stepper stepper =
      start(owned->stream, 0, {{"delta", Value{1.0}}, {"t", count_of(2)}, {"s", count_of(3)}});
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
      start(owned->stream, 0, {{"delta", Value{9.0}}, {"t", count_of(1)}, {"s", count_of(2)}});
  const Index filled[] = {0, 0, 2, 2};
  for (const Index expected : filled) {
    REQUIRE(stepper.next());
    const SubgenParts parts = subgen_parts(stepper.sketch());
    CHECK(std::ssize(parts.slots) == expected);
    for (const WeightedToken& slot : parts.slots) {
      CHECK(slot.token == 2);
      CHECK(slot.w_num == doctest::Approx(0.5).epsilon(1e-15));  // mu / (s w) = 4 / (2 * 4)
    }
    CHECK(stepper.sketch().kept_counts().values == expected);
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
                                 {"t", count_of(point.t)},
                                 {"s", count_of(point.s)},
                                 {"sinks", count_of(point.sinks)},
                                 {"recent", count_of(point.recent)}},
                                static_cast<std::uint32_t>(prompt + 3));
        while (stepper.next()) {
          check_state(owned->stream, stepper.sketch(), stepper.row(), point, "v2");
        }
      }
    }
  }
}

TEST_CASE("the state's facts turn red on planted bugs") {
  const auto owned =
      make_stream({.tokens = 60, .d = 4, .dv = 2, .kind = StreamKind::kClustered, .seed = 2});
  const Stream& stream = owned->stream;
  const Point point{2.0, 3, 8, 2, 4};
  Stepper stepper = start(stream, 59,
                          {{"delta", Value{point.delta}},
                           {"t", count_of(point.t)},
                           {"s", count_of(point.s)},
                           {"sinks", count_of(point.sinks)},
                           {"recent", count_of(point.recent)}},
                          5);
  REQUIRE(stepper.next());
  const KeptCounts kept = stepper.sketch().kept_counts();
  const SubgenParts right = subgen_parts(stepper.sketch());
  const auto error = [&](const std::function<void(SubgenParts&)>& bug) {
    SubgenParts parts = right;
    bug(parts);
    return error_of_state(stream, parts, kept, 59, point, "v2");
  };
  REQUIRE(right.representatives.size() > 1);
  CHECK(error([](SubgenParts&) {}) == "");
  // mu without the last token that entered; weights for ||v||; a lost factor 2.
  double mu = 0.0;
  for (Index j = 2; j < 56; ++j) mu += squared_norm(stream.values, j);
  const double stale = 1.0 - squared_norm(stream.values, 55) / mu;
  for (const double factor : {stale, 0.5}) {
    CHECK(error([&](SubgenParts& p) {
            for (WeightedToken& slot : p.slots) slot.w_num *= factor;
          }) == "another mu");
  }
  CHECK(error([&](SubgenParts& p) {
          for (WeightedToken& slot : p.slots) {
            slot.w_num *= std::sqrt(squared_norm(stream.values, slot.token));
          }
        }) == "another mu");
  // A count that misses the last member; a sample that joined the wrong cluster.
  CHECK(error([&](SubgenParts& p) {
          for (WeightedToken& sample : p.samples) sample.w_den -= 1.0 / 3.0;
        }) == "a sample not of n_i / t");
  CHECK(error([&](SubgenParts& p) { p.samples.front() = p.samples.back(); }) ==
        "a sample of another cluster");
  CHECK(error([](SubgenParts& p) { p.samples.pop_back(); }) == "m' t samples");
  CHECK(error([](SubgenParts& p) { p.slots.pop_back(); }) == "s slots");
  // A representative that moved, one cluster too many, a sink that is sampled as well.
  CHECK(error([](SubgenParts& p) { ++p.representatives.back(); }) == "another representative");
  CHECK(error([](SubgenParts& p) { p.representatives.push_back(55); }) ==
        "as many representatives as clusters");
  CHECK(error([](SubgenParts& p) { p.slots.front().token = 0; }) == "a slot that did not enter");
  CHECK(error([](SubgenParts& p) { p.exact.pop_back(); }) == "other exact tokens");
  // A state that counts its representatives as samples, or keeps no representatives.
  KeptCounts other = kept;
  other.tokens += std::ssize(right.representatives);
  CHECK(error_of_state(stream, right, other, 59, point, "v2") == "memory beside the formula");
  other = kept;
  other.keys -= std::ssize(right.representatives);
  CHECK(error_of_state(stream, right, other, 59, point, "v2") == "memory beside the formula");
  // A radius of 2 delta.
  Point wide = point;
  wide.delta *= 0.1;
  CHECK(error_of_state(stream, right, kept, 59, wide, "v2") != "");
}

TEST_CASE("other sampling weights: mu and slots follow ||v||, ||k||^2 or 1") {
  const auto owned = make_stream({.tokens = 40, .d = 3, .dv = 5});
  for (const char* sampling : {"v1", "k2", "uniform"}) {
    CAPTURE(std::string(sampling));
    const Point point{1.0, 2, 6, 0, 0};
    Stepper stepper = start(owned->stream, 10,
                            {{"delta", Value{point.delta}},
                             {"t", count_of(point.t)},
                             {"s", count_of(point.s)},
                             {"sampling", word_of(sampling)}});
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
              {{"delta_quantile", Value{quantile}}, {"t", count_of(2)}, {"s", count_of(3)}});
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
  const Params params = subgen({{"delta", Value{1.0}}, {"t", count_of(1)}, {"s", count_of(1)}});
  StreamShape shape = make_stream({.tokens = 30, .window = 10})->stream.shape;
  const auto reason = reason_to_skip(algorithm, params, shape, 20);
  REQUIRE(reason);
  CHECK(reason->find("window") != std::string::npos);
  shape.window = 30;  // never slides
  CHECK(!reason_to_skip(algorithm, params, shape, 20));
}

}  // namespace subgen_state_test
}  // namespace kvbench::test
