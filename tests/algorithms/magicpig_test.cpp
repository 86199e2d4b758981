// magicpig: tokens whose hashes collide with the query's, weighted by the inverse of how likely
// that is.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "numerics/counter_rng.hpp"
#include "numerics/logit_noise.hpp"
#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace magicpig_test {

struct Setting {
  Index bits = 3;
  Index tables = 12;
  Index sinks = 2;
  Index recent = 3;
  Index least = 2;
  double epsilon = 1e-4;
  std::string centre = "keys";
};

Given given_of(const Setting& s) {
  return {{"bits", count_of(s.bits)},   {"tables", count_of(s.tables)},
          {"sinks", count_of(s.sinks)}, {"recent", count_of(s.recent)},
          {"least", count_of(s.least)}, {"epsilon", number(s.epsilon)},
          {"centre", word_of(s.centre)}};
}

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

double choose(Index n, Index k) {
  return k == 0 ? 1.0 : choose(n, k - 1) * static_cast<double>(n - k + 1) / static_cast<double>(k);
}

// Weight of every token that is read, by (row - P, query head), token by token as the paper has it.
std::vector<std::vector<std::map<Index, double>>> naive(const Stream& stream, Index prompt,
                                                        std::uint32_t seed, const Setting& s) {
  const StreamShape& shape = stream.shape;
  const Index first = std::min(s.sinks, prompt);
  const Index last = std::max(first, prompt - s.recent);
  const CounterRng random(seed, stream.id.hash(), "magicpig/planes");
  const auto side = [&](const Vector& vector, Index plane) {
    double sum = 0.0;
    for (std::size_t c = 0; c < vector.size(); ++c) {
      sum += vector[c] * normal_quantile(random.uniform53(static_cast<std::uint32_t>(plane),
                                                          static_cast<std::uint32_t>(c)));
    }
    return sum > 0.0;
  };
  Vector mean(static_cast<std::size_t>(shape.d), 0.0);
  for (Index j = first; j < last && s.centre != "none"; ++j) {
    for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += stream.keys.row(j)[c];
  }
  for (double& each : mean) each /= std::max(1.0, static_cast<double>(last - first));
  const auto less_mean = [&](const double* from, bool subtract) {
    Vector out(from, from + shape.d);
    for (std::size_t c = 0; c < out.size() && subtract; ++c) out[c] -= mean[c];
    return out;
  };
  std::vector<std::vector<std::map<Index, double>>> all;
  for (Index row = prompt; row < shape.tokens; ++row) {
    all.emplace_back();
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      std::map<Index, double> weights;
      for (Index j = 0; j <= row; ++j) {
        if (j < first || j >= last) weights[j] = 1.0;
      }
      const Vector query = less_mean(stream.query(g, row), s.centre == "both");
      for (Index j = first; j < last; ++j) {
        const Vector key = less_mean(stream.keys.row(j), s.centre != "none");
        Index hits = 0;
        for (Index table = 0; table < s.tables; ++table) {
          bool agree = true;
          for (Index bit = 0; bit < s.bits; ++bit) {
            const Index plane = table * s.bits + bit;
            agree = agree && side(query, plane) == side(key, plane);
          }
          hits += agree ? 1 : 0;
        }
        if (hits < s.least) continue;
        const double norms = std::sqrt(dot(query, query) * dot(key, key));
        const double cosine = norms > 0.0 ? dot(query, key) / norms : 0.0;
        const double p = 1.0 - std::acos(std::clamp(cosine, -1.0, 1.0)) / std::numbers::pi;
        const double agree = std::pow(p, static_cast<double>(s.bits));
        double u = 0.0;  // probability of at least `least` agreeing tables
        for (Index i = s.least; i <= s.tables; ++i) {
          u += choose(s.tables, i) * std::pow(agree, static_cast<double>(i)) *
               std::pow(1.0 - agree, static_cast<double>(s.tables - i));
        }
        weights[j] = 1.0 / (u + s.epsilon);
      }
      all.back().push_back(weights);
    }
  }
  return all;
}

TEST_CASE("reads and weighs what a plain program does") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 5, .dv = 2, .heads_per_kv = 1},
      {.tokens = 40, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered}};
  std::vector<Setting> settings = {{}, {.bits = 1}, {.bits = 5, .tables = 30}, {.tables = 2}};
  settings.push_back({.least = 1});
  settings.push_back({.centre = "none"});
  settings.push_back({.centre = "both"});
  settings.push_back({.sinks = 0, .recent = 0, .epsilon = 0.0});
  Index sampled = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Setting& setting : settings) {
      for (const Index prompt : {0, 1, 28}) {
        const auto expected = naive(owned->stream, prompt, 7, setting);
        const auto all = sketches_of("magicpig", owned->stream, prompt, given_of(setting), 7);
        REQUIRE(all.size() == expected.size());
        for (std::size_t r = 0; r < all.size(); ++r) {
          for (int g = 0; g < spec.heads_per_kv; ++g) {
            const auto ours = weights_for(all[r], g);
            const auto& theirs = expected[r][g];
            REQUIRE(ours.size() == theirs.size());
            for (const auto& [token, weight] : theirs) {
              REQUIRE(ours.count(token) == 1);
              // Rounding, below 1e-13 here.
              CHECK(ours.at(token) == doctest::Approx(weight).epsilon(1e-12));
              sampled += weight != 1.0 ? 1 : 0;
            }
          }
        }
      }
    }
  }
  CHECK(sampled > 1000);
}

TEST_CASE("without bits every token is read, and only epsilon is left of the error") {
  const auto owned = make_stream({.tokens = 40, .d = 5, .dv = 2, .heads_per_kv = 2});
  const auto all =
      sketches_of("magicpig", owned->stream, 30, given_of({.bits = 0, .epsilon = 1e-4}), 1);
  REQUIRE(all.size() == 10);
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (const int g : {0, 1}) {
      const auto weights = weights_for(all[r], g);
      CHECK(weights.size() == 31 + r);
      for (const auto& [token, weight] : weights) {
        const bool middle = token >= 2 && token < 27;
        CHECK(weight == doctest::Approx(middle ? 1.0 / (1.0 + 1e-4) : 1.0).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("memory has the codes of the middle in bits besides all tokens") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const AlgorithmDescription& algorithm = algorithm_named("magicpig");
  const CellResult cell = replay_one(owned->stream, 20, algorithm,
                                     params_for(algorithm, given_of({.bits = 3, .tables = 5})), 1);
  // 15 tokens of the middle, 15 bits each: 225 bits in 29 bytes, and 4 numbers of the mean.
  CHECK(cell.memory.lookup_bytes == 4 * 2 + 29);
  CHECK(cell.memory.bytes == 24 * 6 * 2 + 37);
}

TEST_CASE("planes are shared bytes beside memory and traffic, whoever shares them") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const AlgorithmDescription& algorithm = algorithm_named("magicpig");
  for (const char* planes : {"head", "shared"}) {
    Given given = given_of({.bits = 3, .tables = 5});
    given.emplace_back("planes", word_of(planes));
    const CellResult cell =
        replay_one(owned->stream, 20, algorithm, params_for(algorithm, given), 1);
    CHECK(cell.memory.shared_bytes == 3 * 5 * 4 * 2);  // bits, tables, d, 2 bytes
    CHECK(cell.memory.fraction == static_cast<double>(24 * 6 * 2 + 37) / (24 * 6 * 2));
    CHECK(cell.traffic.bytes_read_max <= cell.memory.bytes);
  }
  // A prompt without a middle: nothing is hashed.
  const Params params = params_for(algorithm, given_of({.bits = 3, .tables = 5}));
  CHECK(replay_one(owned->stream, 4, algorithm, params, 1).memory.shared_bytes == 0);
}

TEST_CASE("a sliding layer is skipped, and more agreeing tables than there are is refused") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  CHECK(skip_of("magicpig", shape, 20, given_of({})).empty());
  shape.window = 10;
  CHECK(skip_of("magicpig", shape, 20, given_of({})).find("sliding window of 10") !=
        std::string::npos);
  const AlgorithmDescription& algorithm = algorithm_named("magicpig");
  const auto error = algorithm.validate(params_for(algorithm, given_of({.tables = 1, .least = 2})));
  REQUIRE(error);
  CHECK(error->first == "least");
}

}  // namespace magicpig_test
}  // namespace kvbench::test
