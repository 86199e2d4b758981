// vattention: what is read anyway, how large the sample is, and what it weighs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "numerics/counter_rng.hpp"
#include "numerics/logit_noise.hpp"
#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace vattention_test {

struct Setting {
  Index sinks = 2;
  Index recent = 3;
  Index top = 4;
  double base = 0.3;
  double epsilon = 0.5;
  double delta = 0.2;
};

Given given_of(const Setting& s) {
  return {{"sinks", count_of(s.sinks)}, {"recent", count_of(s.recent)}, {"top", count_of(s.top)},
          {"base", number(s.base)},     {"epsilon", number(s.epsilon)}, {"delta", number(s.delta)}};
}

using Weights = std::map<Index, double>;

// The weights of one row and query head, step by step as in the paper's code.
Weights naive(const Stream& stream, Index row, int g, std::uint32_t seed, const Setting& s,
              Index& draws) {
  const Index n = row + 1;
  const Index from = s.sinks;
  const Index to = n - s.recent;
  const Index range = to - from;
  Weights out;
  if (range < 2) {
    for (Index j = 0; j < n; ++j) out[j] = 1.0;
    return out;
  }
  std::vector<double> x;
  for (Index j = 0; j < n; ++j) {
    double dot = 0.0;
    for (Index c = 0; c < stream.shape.d; ++c) dot += stream.query(g, row)[c] * stream.keys(j, c);
    x.push_back(stream.shape.scale * dot);
  }
  const double most = *std::max_element(x.begin(), x.end());
  const auto e = [&](Index j) { return std::exp(x[j] - most); };
  for (Index j = 0; j < from; ++j) out[j] = 1.0;
  for (Index j = to; j < n; ++j) out[j] = 1.0;
  std::vector<Index> order;
  for (Index j = from; j < to; ++j) order.push_back(j);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return x[a] > x[b]; });
  for (Index k = 0; k < std::min(s.top, range); ++k) out[order[k]] = 1.0;
  double denominator = 0.0;
  for (const auto& [j, weight] : out) denominator += weight * e(j);
  const auto drawn = [&](const char* purpose, Index count) {
    const CounterRng random(seed, stream.id.hash(), purpose);
    std::vector<Index> tokens;
    for (Index k = 0; k < count; ++k) {
      const double u =
          random.uniform53(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(k),
                           static_cast<std::uint32_t>(g));
      tokens.push_back(from + static_cast<Index>(u * static_cast<double>(range)));
    }
    return tokens;
  };
  const auto wanted =
      static_cast<Index>(s.base < 1.0 ? s.base * static_cast<double>(range) : s.base);
  const Index base = std::max<Index>(2, std::min(wanted, range));
  double mean = 0.0;
  double squares = 0.0;
  const std::vector<Index> sample = drawn("vattention/base", base);
  for (const Index j : sample) mean += e(j) / static_cast<double>(base);
  for (const Index j : sample) squares += (e(j) - mean) * (e(j) - mean);
  const double sd = std::max(1e-8, std::sqrt(squares / static_cast<double>(base - 1)));
  denominator += static_cast<double>(range) * mean;
  const double z = normal_quantile(1.0 - s.delta);
  const double asked =
      std::pow(z * sd * static_cast<double>(range) / (s.epsilon * denominator), 2.0);
  draws = std::clamp(static_cast<Index>(std::min(asked, static_cast<double>(range))), base, range);
  if (draws == range) {
    for (Index j = from; j < to; ++j) out[j] = 1.0;
    return out;
  }
  Weights sampled;
  for (const Index j : drawn("vattention/sample", draws)) {
    if (out.count(j) == 0) sampled[j] += static_cast<double>(range) / static_cast<double>(draws);
  }
  out.insert(sampled.begin(), sampled.end());
  return out;
}

TEST_CASE(
    "worked: equal logits need no more than the base, and a token weighs what it stands for") {
  // Row 9 sees ten equal tokens: of [1, 8) two are drawn, each for 7 / 2.
  const auto owned = stream_of(Rows(10, {0.0}), Rows(10, {1.0}), {Rows(10, {1.0})});
  const Setting s{.sinks = 1, .recent = 2, .top = 0, .base = 2};
  const Sketch sketch = sketches_of("vattention", owned->stream, 9, given_of(s), 3).front();
  double sum = 0.0;
  for (const auto& [token, weight] : weights_for(sketch, 0)) {
    const bool is_sampled = token >= 1 && token < 8;
    CHECK((is_sampled ? std::fmod(weight, 3.5) : weight - 1.0) == 0.0);
    sum += weight;
  }
  CHECK(sum == doctest::Approx(10).epsilon(1e-15));
}

TEST_CASE("reads and weighs what a plain program does") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 2, .heads_per_kv = 1},
      {.tokens = 60, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered}};
  const std::vector<Setting> settings = {{},
                                         {.top = 0},
                                         {.sinks = 0, .recent = 0, .top = 70},
                                         {.base = 5},
                                         {.base = 100},
                                         {.epsilon = 0.05},
                                         {.epsilon = 1.0, .delta = 0.5},
                                         {.sinks = 30, .recent = 28}};
  Index sampled = 0;
  Index whole = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Setting& setting : settings) {
      const auto all = sketches_of("vattention", owned->stream, 50, given_of(setting), 7);
      for (std::size_t r = 0; r < all.size(); ++r) {
        for (int g = 0; g < spec.heads_per_kv; ++g) {
          Index draws = 0;
          const Index row = 50 + static_cast<Index>(r);
          const Weights theirs = naive(owned->stream, row, g, 7, setting, draws);
          const Weights ours = weights_for(all[r], g);
          REQUIRE(ours.size() == theirs.size());
          for (const auto& [token, weight] : theirs) {
            REQUIRE(ours.count(token) == 1);
            CHECK(ours.at(token) == doctest::Approx(weight).epsilon(1e-12));
          }
          (theirs.size() == static_cast<std::size_t>(row + 1) ? whole : sampled) += 1;
        }
      }
    }
  }
  CHECK(sampled > 100);
  CHECK(whole > 100);
}

TEST_CASE("traffic has the keys of the base, memory is that of all tokens") {
  const auto owned = stream_of(Rows(12, {0.0, 0.0}), Rows(12, {1.0}), {Rows(12, {1.0, 1.0})});
  const AlgorithmDescription& algorithm = algorithm_named("vattention");
  const Setting s{.sinks = 1, .recent = 1, .top = 1, .base = 3};
  const CellResult cell =
      replay_one(owned->stream, 11, algorithm, params_for(algorithm, given_of(s)), 1);
  CHECK(cell.memory.bytes == 12 * 3 * 2);
  const double tokens = cell.traffic.tokens_read_mean;
  CHECK(cell.traffic.bytes_read_mean == tokens * 3 * 2 + 3 * 2 * 2);
}

TEST_CASE("a sliding layer is skipped") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  CHECK(skip_of("vattention", shape, 20, given_of({})).empty());
  shape.window = 10;
  CHECK(skip_of("vattention", shape, 20, given_of({})).find("sliding window of 10") !=
        std::string::npos);
}

}  // namespace vattention_test
}  // namespace kvbench::test
