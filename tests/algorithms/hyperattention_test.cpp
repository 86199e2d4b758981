// hyperattention and kdeformer: keys by hash, and the sample that stands for the others.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "algorithms/mechanisms/hashed_keys.hpp"
#include "kernels/cpu_kernels.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/logit_noise.hpp"
#include "support/naive_matching.hpp"
#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace hyperattention_test {

struct Setting {
  std::string id = "hyperattention";
  Index bits = 3;
  Index block = 6;
  Index samples = 9;
  Index exact_below = 10;        // hyperattention's
  std::string norm = "squared";  // kdeformer's
};

Given given_of(const Setting& s) {
  Given out{
      {"bits", count_of(s.bits)}, {"block", count_of(s.block)}, {"samples", count_of(s.samples)}};
  if (s.id == "kdeformer") {
    out.emplace_back("norm", word_of(s.norm));
  } else {
    out.emplace_back("exact_below", count_of(s.exact_below));
  }
  return out;
}

using Weights = std::map<Index, double>;

// Reflected Gray codes, built by reflection.
std::vector<std::uint32_t> gray(Index bits) {
  if (bits == 0) return {0};
  std::vector<std::uint32_t> half = gray(bits - 1);
  std::vector<std::uint32_t> out = half;
  for (auto code = half.rbegin(); code != half.rend(); ++code) {
    out.push_back(*code + (1U << (bits - 1)));
  }
  return out;
}

Weights naive(const Stream& stream, Index row, int g, std::uint32_t seed, const Setting& s) {
  const StreamShape& shape = stream.shape;
  const Index n = row + 1;
  Weights out;
  const bool is_hyper = s.id == "hyperattention";
  if (n <= s.block || (is_hyper && n <= s.exact_below)) {
    for (Index j = 0; j < n; ++j) out[j] = 1.0;
    return out;
  }
  const std::vector<std::uint32_t> numbers = gray(s.bits);
  const CounterRng planes(seed, stream.id.hash(), s.id + "/planes");
  const auto number_of = [&](const double* vector) {
    std::size_t code = 0;
    for (Index bit = 0; bit < s.bits; ++bit) {
      double side = 0.0;
      for (Index c = 0; c < shape.d; ++c) {
        side += vector[c] * normal_quantile(planes.uniform53(static_cast<std::uint32_t>(bit),
                                                             static_cast<std::uint32_t>(c)));
      }
      if (side > 0.0) code += std::size_t{1} << bit;
    }
    return numbers[code];
  };
  std::vector<std::pair<std::uint32_t, Index>> sorted;
  for (Index j = 0; j < n; ++j) sorted.emplace_back(number_of(stream.keys.row(j)), j);
  std::sort(sorted.begin(), sorted.end());
  const std::uint32_t asked = number_of(stream.query(g, row));
  Index lower = 0;
  Index equal = 0;
  for (const auto& [number, token] : sorted) {
    lower += number < asked ? 1 : 0;
    equal += number == asked ? 1 : 0;
  }
  Index first = lower + equal / 2 - s.block / 2;
  first = std::min(std::max<Index>(first, 0), n - s.block);
  for (Index k = first; k < first + s.block; ++k) {
    out[sorted[k].second] = 1.0;
  }
  std::vector<double> p(n, 1.0 / static_cast<double>(n));
  if (!is_hyper) {
    RealRows values;  // with a one each
    for (Index j = 0; j < n; ++j) {
      std::vector<Real>& value = values.emplace_back(1, 1);
      for (Index c = 0; c < shape.dv; ++c) value.push_back(stream.values(j, c));
    }
    const Real top = naive_top_eigenvalue(values);
    const Real nu = s.norm == "squared" ? top : std::sqrt(top);
    double sum = 0.0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      Real squares = 0;
      for (const Real each : values[j]) squares += each * each;
      p[j] += static_cast<double>(std::sqrt(squares) / nu);
      sum += p[j];
    }
    for (double& each : p) each /= sum;
  }
  const CounterRng random(seed, stream.id.hash(), s.id + "/sample");
  Weights sampled;
  for (Index k = 0; k < s.samples; ++k) {
    double u = random.uniform53(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(k),
                                static_cast<std::uint32_t>(g));
    Index token = 0;
    while (token + 1 < n && u >= p[token]) {
      u -= p[token++];
    }
    if (out.count(token) > 0) continue;
    sampled[token] += 1.0 / (static_cast<double>(s.samples) * p[token]);
  }
  out.insert(sampled.begin(), sampled.end());
  return out;
}

TEST_CASE("worked: keys of one dimension are sorted by their sign, a query reads its own side") {
  // One bit: keys of one sign have the lower number. Negative ones are 1 3 5 7.
  Rows keys;
  for (Index j = 0; j < 8; ++j) keys.push_back({j % 2 == 0 ? 1.0 : -1.0});
  const auto owned = stream_of(keys, Rows(8, {1.0}), {Rows(8, {-2.0})});
  const SharedResults shared;
  HashedKeys hashed({owned->stream, 7, 0, cpu_kernels(), shared}, 1, "test/planes");
  hashed.add(0, 5);
  hashed.add(5, 8);
  const double down = -2.0;
  const double up = 3.0;
  CHECK(hashed.number_of(&down) != hashed.number_of(&up));
  CHECK(hashed.around(&down, 4) == std::vector<Index>{1, 3, 5, 7});
  CHECK(hashed.around(&up, 4) == std::vector<Index>{0, 2, 4, 6});
  CHECK(hashed.around(&down, 2) == std::vector<Index>{3, 5});
  CHECK(hashed.around(&down, 8).size() == 8);
  // No bits: one place in the middle for all.
  HashedKeys plain({owned->stream, 7, 0, cpu_kernels(), shared}, 0, "test/planes");
  plain.add(0, 8);
  CHECK(plain.around(&down, 4) == std::vector<Index>{2, 3, 4, 5});
}

TEST_CASE("the sample of hyperattention, worked: what is not in the block stands for n / samples") {
  const auto owned = stream_of(Rows(12, {0.0}), Rows(12, {1.0}), {Rows(12, {1.0})});
  const Setting s{.block = 4, .samples = 3, .exact_below = 0};
  const Sketch sketch = sketches_of("hyperattention", owned->stream, 11, given_of(s), 2).front();
  Index block = 0;
  for (const auto& [token, weight] : weights_for(sketch, 0)) {
    block += weight == 1.0 ? 1 : 0;
    CHECK((weight == 1.0 || std::fmod(weight, 4.0) == 0.0));
  }
  CHECK(block == 4);
}

TEST_CASE("both read and weigh what a plain program does") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 5, .dv = 2, .heads_per_kv = 1},
      {.tokens = 50, .d = 5, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered}};
  std::vector<Setting> settings = {{}, {.bits = 0}, {.bits = 7}, {.block = 45}, {.samples = 0}};
  settings.push_back({.samples = 60, .exact_below = 44});
  for (const char* norm : {"squared", "operator"}) {
    for (const Index samples : {0, 5, 80}) {
      settings.push_back({.id = "kdeformer", .samples = samples, .norm = norm});
    }
  }
  settings.push_back({.id = "kdeformer", .bits = 6, .block = 44});
  Index sampled = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Setting& setting : settings) {
      CAPTURE(setting.id);
      CAPTURE(setting.samples);
      const auto all = sketches_of(setting.id, owned->stream, 40, given_of(setting), 7);
      for (std::size_t r = 0; r < all.size(); ++r) {
        for (int g = 0; g < spec.heads_per_kv; ++g) {
          const Weights theirs = naive(owned->stream, 40 + static_cast<Index>(r), g, 7, setting);
          const Weights ours = weights_for(all[r], g);
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
  CHECK(sampled > 1000);
}

TEST_CASE("rows of few tokens, and blocks of all, are exact") {
  const auto owned = make_stream({.tokens = 40, .d = 5, .dv = 2, .heads_per_kv = 2});
  for (const Setting& s : {Setting{.exact_below = 40}, Setting{.block = 40, .exact_below = 0},
                           Setting{.id = "kdeformer", .block = 40}}) {
    const AlgorithmDescription& algorithm = algorithm_named(s.id);
    const CellResult cell =
        replay_one(owned->stream, 30, algorithm, params_for(algorithm, given_of(s)), 3);
    CHECK(cell.metrics["errors.relative_l2.max"].value() < 1e-14);
    if (s.id == "hyperattention") CHECK(derived_real(cell.derived, "exact_rows") == 1.0);
  }
  // Rows 30 to 39 see 31 to 40 tokens.
  const AlgorithmDescription& algorithm = algorithm_named("hyperattention");
  const Setting some{.exact_below = 33};
  const CellResult cell =
      replay_one(owned->stream, 30, algorithm, params_for(algorithm, given_of(some)), 3);
  CHECK(derived_real(cell.derived, "exact_rows") == 0.3);
}

TEST_CASE("memory has the codes, and of kdeformer the size of each value") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const auto bytes = [&](const Setting& s) {
    const AlgorithmDescription& algorithm = algorithm_named(s.id);
    return replay_one(owned->stream, 20, algorithm, params_for(algorithm, given_of(s)), 1)
        .memory.lookup_bytes;
  };
  CHECK(bytes({}) == 24 * 3 / 8);
  CHECK(bytes({.id = "kdeformer"}) == 24 * 3 / 8 + 24 * 2);
}

TEST_CASE("planes are shared bytes, and of kdeformer sums of products of values, row by row") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const auto bytes = [&](const Setting& s) {
    const AlgorithmDescription& algorithm = algorithm_named(s.id);
    return replay_one(owned->stream, 20, algorithm, params_for(algorithm, given_of(s)), 1)
        .memory.shared_bytes;
  };
  CHECK(bytes({}) == 3 * 4 * 2);                                 // bits, d, 2 bytes
  CHECK(bytes({.exact_below = 100}) == 3 * 4 * 2);               // rows to come may need them
  CHECK(bytes({.id = "kdeformer"}) == (3 * 4 + 3 + 2 + 1) * 2);  // a triangle of 3 columns
}

TEST_CASE("sliding layers are skipped by both") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  for (const char* id : {"hyperattention", "kdeformer"}) {
    shape.window = 0;
    CHECK(skip_of(id, shape, 20, given_of({.id = id})).empty());
    shape.window = 10;
    CHECK(skip_of(id, shape, 20, given_of({.id = id})).find("sliding window of 10") !=
          std::string::npos);
  }
}

}  // namespace hyperattention_test
}  // namespace kvbench::test
