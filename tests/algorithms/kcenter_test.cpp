// kcenter: greedy farthest-first over the prompt's middle (I11).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support/given.hpp"
#include "support/naive_metrics.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace kcenter_test {

std::vector<Sketch> run(const Stream& stream, Index prompt, const Given& given,
                        std::uint32_t seed = 0) {
  const AlgorithmDescription& algorithm = algorithm_named("kcenter");
  return sketches(stream, prompt, algorithm, params_for(algorithm, given), seed);
}

double covering_radius(const Stream& stream, Index prompt, const Given& given) {
  const AlgorithmDescription& algorithm = algorithm_named("kcenter");
  Stepper stepper(stream, prompt, algorithm, params_for(algorithm, given));
  return derived_real(stepper.algorithm().derived(), "covering_radius");
}

// Keys on a line at the given places.
std::unique_ptr<OwnedStream> line(const std::vector<double>& places) {
  Rows keys;
  Rows values;
  Rows queries;
  for (std::size_t j = 0; j < places.size(); ++j) {
    keys.push_back({places[j]});
    values.push_back({static_cast<double>(j)});
    queries.push_back({0.1});
  }
  return stream_of(keys, values, {queries});
}

TEST_CASE("worked: four centres on a line, two recent tokens") {
  // Prompt of eight, recent 2 (tokens 6, 7), centres over 0 1 5 6 20 22 from token 0 on:
  // 0, then 22 (token 5), then 6 (distance 6: token 3; token 2 is at 5), then 5 or 20?
  // Distances left: 1 -> 1, 5 -> 1, 20 -> 2: token 4.
  const auto owned = line({0, 1, 5, 6, 20, 22, 3, 4, 9});
  const auto sketch = run(owned->stream, 8, {{"budget", count_of(6)}, {"recent", count_of(2)}});
  CHECK(kept_sets(sketch) == KeptSets{{0, 3, 4, 5, 6, 7, 8}});
  CHECK(covering_radius(owned->stream, 8, {{"budget", count_of(6)}, {"recent", count_of(2)}}) ==
        1.0);
  // One centre fewer leaves 20 uncovered by 2.
  CHECK(covering_radius(owned->stream, 8, {{"budget", count_of(5)}, {"recent", count_of(2)}}) ==
        2.0);
}

TEST_CASE("worked: cluster sizes and mean values, ties to the centre chosen first") {
  // Centres over 0 4 2 10 1 (values 0 .. 4): 0, then 10 (token 3), budget 2, recent 0.
  // 4 is at 4 of 0 and 6 of 10; so {0, 4, 2, 1} and {10}. Tokens 0, 1, 2, 4 average 7/4.
  const auto owned = line({0, 4, 2, 10, 1, 7});
  const Given given = {{"budget", count_of(2)},
                       {"recent", count_of(0)},
                       {"weights", word_of("size")},
                       {"value", word_of("mean")}};
  const Sketch sketch = run(owned->stream, 5, given).front();
  REQUIRE(sketch.size() == 3);
  CHECK(kept_tokens(sketch) == std::vector<Index>{0, 3, 5});
  for (const SketchRow& row : sketch.rows()) {
    const double weight = row.token == 0 ? 4.0 : 1.0;
    CHECK(row.w_num == weight);
    CHECK(row.w_den == weight);
    if (row.token == 5) {
      CHECK(row.own_value < 0);
    } else {
      REQUIRE(row.own_value >= 0);
      const double value = sketch.own_values[row.own_value][0];
      CHECK(value == doctest::Approx(row.token == 0 ? 7.0 / 4.0 : 3.0).epsilon(1e-15));
    }
  }
  // A token midway between two centres belongs to the older choice: 5 between 0 and 10.
  const auto tie = line({0, 10, 5, 7});
  const Sketch tied =
      run(tie->stream, 3,
          {{"budget", count_of(2)}, {"recent", count_of(0)}, {"weights", word_of("size")}})
          .front();
  for (const SketchRow& row : tied.rows()) CHECK(row.w_den == (row.token == 0 ? 2.0 : 1.0));
}

TEST_CASE("held tokens are sinks, centres by the greedy rule, recent and decode tokens") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 2},
      {.tokens = 60, .d = 3, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 60, .d = 2, .dv = 2, .kind = StreamKind::kTies},
      {.tokens = 60, .d = 2, .dv = 2, .kind = StreamKind::kEqualKeys},
      {.tokens = 60, .d = 4, .dv = 2, .window = 25}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    const Index prompt = 50;
    for (const Index budget : {4, 9, 20, 49}) {
      for (const Index sinks : {0, 3}) {
        for (const Index recent : {-1, 0, 1}) {  // -1: the default, half the budget
          const Index kept_recent = recent < 0 ? budget / 2 : recent;
          if (budget < sinks + kept_recent) continue;
          Given given = {{"budget", count_of(budget)}, {"sinks", count_of(sinks)}};
          if (recent >= 0) given.emplace_back("recent", count_of(recent));
          const Index lo = stream.shape.first_visible(prompt);
          std::set<Index> expected;
          for (Index j = 0; j < sinks; ++j) expected.insert(j);
          for (Index j = prompt - kept_recent; j < prompt; ++j) expected.insert(j);
          const Index first = std::max(lo, sinks);
          const Index last = std::max(prompt - kept_recent, lo);
          if (prompt - lo <= budget) {
            for (Index j = lo; j < prompt; ++j) expected.insert(j);
          } else {
            const Index count = std::min(budget - sinks - kept_recent, last - first);
            for (const Index c : naive_farthest_first(stream.keys, first, last, first, count)) {
              expected.insert(c);
            }
          }
          KeptSets naive;
          for (Index row = prompt; row < stream.shape.tokens; ++row) {
            expected.insert(row);
            expected.erase(expected.begin(), expected.lower_bound(stream.shape.first_visible(row)));
            naive.emplace_back(expected.begin(), expected.end());
          }
          CAPTURE(spec.d);
          CAPTURE(budget);
          CAPTURE(sinks);
          CAPTURE(recent);
          CHECK(kept_sets(run(stream, prompt, given)) == naive);
        }
      }
    }
  }
}

TEST_CASE("the first centre may be the key farthest from the mean, or random by seed") {
  const auto owned = make_stream({.tokens = 40, .d = 4, .dv = 2});
  const Stream& stream = owned->stream;
  std::vector<double> mean(4, 0.0);
  for (Index j = 0; j < 30; ++j) {
    for (Index k = 0; k < 4; ++k) mean[k] += stream.keys(j, k) / 30.0;
  }
  Index farthest = 0;
  double distance = -1.0;
  for (Index j = 0; j < 30; ++j) {
    double sum = 0.0;
    for (Index k = 0; k < 4; ++k) {
      sum += std::pow(stream.keys(j, k) - mean[k], 2);
    }
    if (sum > distance) {
      distance = sum;
      farthest = j;
    }
  }
  const auto centres = [&](const char* first, std::uint32_t seed) {
    std::vector<Index> kept = kept_tokens(
        run(stream, 30,
            {{"budget", count_of(5)}, {"recent", count_of(0)}, {"first", word_of(first)}}, seed)
            .front());
    kept.pop_back();  // the decode token
    return kept;
  };
  const auto naive = [&](Index start) {
    std::vector<Index> c = naive_farthest_first(stream.keys, 0, 30, start, 5);
    std::sort(c.begin(), c.end());
    return c;
  };
  CHECK(centres("farthest_from_mean", 0) == naive(farthest));
  std::set<std::vector<Index>> seen;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<Index> kept = centres("random", seed);
    bool from_some_start = false;
    for (Index start = 0; start < 30; ++start) from_some_start |= kept == naive(start);
    CHECK(from_some_start);
    seen.insert(kept);
  }
  CHECK(seen.size() > 3);
}

}  // namespace kcenter_test
}  // namespace kvbench::test
