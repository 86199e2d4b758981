// turboquant, worked, against the formulas written plainly in long double, and its facts.
#include "storage/turboquant.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "codec_support.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "storage/half.hpp"
#include "storage/lloyd_max.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace turboquant_test {

using Real = long double;
using Reals = std::vector<Real>;

Value word(const char* text) { return Value{std::string(text)}; }
Value count(std::int64_t x) { return Value{x}; }

Given form(const char* name, std::int64_t bits) {
  return {{"form", word(name)}, {"bits", count(bits)}};
}

Numbers normal_numbers(std::size_t size, unsigned seed, double spread = 1.0) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal(0.0, spread);
  Numbers out(size);
  for (double& x : out) x = normal(rng);
  return out;
}

CounterRng draws(const char* purpose) { return {0, StreamId{}.hash(), purpose}; }

// Row-major.
Numbers rotation(const char* name, Index d) {
  if (std::string(name) == "haar") return haar_matrix(draws("storage/rotation"), d);
  const Numbers signs = fair_signs(draws("storage/rotation"), d);
  Numbers out;
  for (Index i = 0; i < d; ++i) {
    for (Index j = 0; j < d; ++j) {
      const bool is_odd = __builtin_popcountll(static_cast<unsigned long long>(i & j)) % 2 == 1;
      out.push_back((is_odd ? -1.0 : 1.0) * signs[j] / std::sqrt(static_cast<double>(d)));
    }
  }
  return out;
}

Reals times(const Numbers& matrix, const Reals& x, bool transposed) {
  const std::size_t d = x.size();
  Reals out(d, 0);
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j < d; ++j) {
      out[i] += (transposed ? matrix[j * d + i] : matrix[i * d + j]) * x[j];
    }
  }
  return out;
}

Real size_of(const Reals& x) {
  Real sum = 0;
  for (const Real each : x) sum += each * each;
  return std::sqrt(sum);
}

Real half(Real x) { return from_half(half_bits(static_cast<double>(x))); }

// The direction as it is decoded from codes of `bits`.
Reals coded(const Reals& u, const Numbers& matrix, const Numbers& points) {
  Reals y = times(matrix, u, false);
  const Real root = std::sqrt(static_cast<Real>(u.size()));
  for (Real& x : y) {
    Real best = points[0] / root;
    for (const double point : points) {
      if (std::fabs(point / root - x) <= std::fabs(best - x)) best = point / root;
    }
    x = best;
  }
  return times(matrix, y, true);
}

// mse, and prod with `signs` (S).
Reals naive(const Numbers& x, const Numbers& matrix, const Numbers& points, const Numbers& signs) {
  Reals u(x.begin(), x.end());
  const Real rho = size_of(u);
  for (Real& each : u) each /= rho;
  Reals out = points.empty() ? Reals(u.size(), 0) : coded(u, matrix, points);
  if (!signs.empty()) {
    Reals rest = u;
    for (std::size_t k = 0; k < u.size(); ++k) rest[k] -= out[k];
    Reals sides = times(signs, rest, false);
    for (Real& side : sides) side = side >= 0 ? 1 : -1;
    const Reals back = times(signs, sides, true);
    const Real factor =
        std::sqrt(std::numbers::pi_v<Real> / 2) / static_cast<Real>(u.size()) * half(size_of(rest));
    for (std::size_t k = 0; k < u.size(); ++k) out[k] += factor * back[k];
  }
  for (Real& each : out) each *= half(rho);
  return out;
}

double largest_difference(const Numbers& a, const Reals& b) {
  Real worst = 0;
  for (std::size_t k = 0; k < a.size(); ++k) worst = std::max(worst, std::fabs(a[k] - b[k]));
  return static_cast<double>(worst);
}

double squared_error(const Numbers& a, const Numbers& b) {
  double sum = 0.0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return sum;
}

TEST_CASE("keys of vllm, worked by hand: (3, 4) is 30, 5.0 and (2.84377, 4.11254)") {
  const MadeCodec of = made("turboquant", form("vllm", 3), 2);
  const Bytes bytes = encoded(*of.codec, 2, {3.0, 4.0});
  // y = (1.4, -0.2) / sqrt 2 has codes 6 and 3; 5 in binary16 is 0x4500.
  CHECK(bytes == Bytes{std::byte{30}, std::byte{0x00}, std::byte{0x45}});
  const Numbers back = decoded(*of.codec, 2, bytes);
  CHECK(std::fabs(back[0] - 2.84377) < 1e-5);
  CHECK(std::fabs(back[1] - 4.11254) < 1e-5);
}

TEST_CASE("values of vllm, worked by hand: ties go up, and a constant is its minimum") {
  const MadeCodec of = made("turboquant", form("vllm", 4), 4, {}, CacheTensor::kValues);
  CHECK(round_trip("turboquant", form("vllm", 4), 4, {0, 15, 6.5, 7.49}, CacheTensor::kValues) ==
        Numbers{0, 15, 7, 7});
  CHECK(encoded(*of.codec, 4, {0, 15, 6.5, 7.49}) == Bytes{std::byte{0xf0}, std::byte{0x77},
                                                           std::byte{0x00}, std::byte{0x3c},
                                                           std::byte{0}, std::byte{0}});
  CHECK(round_trip("turboquant", form("vllm", 3), 3, {2.5, 2.5, 2.5}, CacheTensor::kValues) ==
        Numbers{2.5, 2.5, 2.5});
  // Without a rotation the width need not be a power of two.
  CHECK(skip_of("turboquant", form("vllm", 3), 48, CacheTensor::kValues).empty());
}

TEST_CASE("vllm's points are what its iteration makes of N(0, 1)") {
  for (const int bits : {3, 4}) {
    const int levels = 1 << bits;
    const auto density = [](Real x) { return std::exp(-x * x / 2); };
    Reals points;
    for (int i = 0; i < levels; ++i) {
      points.push_back(Real{-3.5L} + Real{7} * (static_cast<Real>(i) + 0.5L) / levels);
    }
    for (int step = 0; step < 200; ++step) {
      Reals edges = {-10.5L};
      for (int i = 1; i < levels; ++i) {
        edges.push_back((points[i - 1] + points[i]) / 2);
      }
      edges.push_back(10.5L);
      Reals next;
      Real change = 0;
      for (std::size_t i = 0; i < points.size(); ++i) {
        Real mass = 0;
        Real first = 0;
        for (int n = 0; n <= 200; ++n) {
          const Real x = edges[i] + (edges[i + 1] - edges[i]) * n / 200;
          const Real weight = n == 0 || n == 200 ? 0.5L : 1.0L;
          mass += weight * density(x);
          first += weight * x * density(x);
        }
        next.push_back(first / mass);
        change = std::max(change, std::fabs(next.back() - points[i]));
      }
      if (change < 1e-10L) break;
      points = next;
    }
    CHECK(largest_difference(vllm_points(bits), points) < 1e-12);
  }
}

TEST_CASE("mse and prod are their formulas, for both rotations and codebooks") {
  const Index d = 32;
  const Numbers x = normal_numbers(32, 4, 3.0);
  for (const char* turn : {"haar", "hadamard_signs"}) {
    for (const char* book : {"gaussian", "beta"}) {
      for (int bits = 1; bits <= 4; ++bits) {
        const EvenDensity density =
            std::string(book) == "beta" ? sphere_density(d) : normal_density();
        Given given = form("mse", bits);
        given.emplace_back("rotation", word(turn));
        given.emplace_back("codebook", word(book));
        const Numbers matrix = rotation(turn, d);
        CHECK(largest_difference(round_trip("turboquant", given, d, x),
                                 naive(x, matrix, lloyd_max_points(density, bits), {})) < 1e-13);
        given[0].second = word("prod");
        const Numbers fewer = bits > 1 ? lloyd_max_points(density, bits - 1) : Numbers{};
        CHECK(largest_difference(round_trip("turboquant", given, d, x),
                                 naive(x, matrix, fewer,
                                       normal_matrix(draws("storage/projection"), d, d))) < 1e-12);
      }
    }
  }
}

TEST_CASE("prod of one bit is qjl with as many normal projections as channels") {
  const Numbers x = normal_numbers(64, 5);
  const Numbers signs = round_trip("qjl",
                                   {{"bits", count(64)},
                                    {"outlier_bits", count(64)},
                                    {"outliers", count(0)},
                                    {"group", count(1)},
                                    {"projection", word("gaussian")}},
                                   64, x);
  CHECK(largest_difference(round_trip("turboquant", form("prod", 1), 64, x),
                           Reals(signs.begin(), signs.end())) < 1e-12);
}

TEST_CASE("matrices are of seed and stream") {
  const Numbers x = normal_numbers(16, 8);
  const auto with = [&](std::uint32_t seed) {
    const MadeCodec of = made("turboquant", form("mse", 2), 16, x, CacheTensor::kKeys, -1, seed);
    return encoded(*of.codec, 16, x);
  };
  CHECK(with(0) == with(0));
  CHECK(with(0) != with(1));
  const CodecDescription& codec = codec_named("turboquant");
  CHECK(codec.randomised(codec_params(codec, form("prod", 2))));
  CHECK_FALSE(codec.randomised(codec_params(codec, form("vllm", 3))));
}

TEST_CASE("bytes of a token, and of what a KV head keeps once") {
  const auto sizes = [](const Given& given, Index width, CacheTensor tensor) {
    const MadeCodec of = made("turboquant", given, width, {}, tensor);
    return std::pair(of.codec->bytes(), of.codec->shared_bytes());
  };
  CHECK(sizes(form("mse", 3), 64, CacheTensor::kKeys) ==
        std::pair<Index, Index>(26, 4 * 4096 + 32));
  CHECK(sizes(form("prod", 3), 64, CacheTensor::kKeys) ==
        std::pair<Index, Index>(28, 8 * 4096 + 16));
  CHECK(sizes(form("prod", 1), 64, CacheTensor::kKeys) == std::pair<Index, Index>(12, 4 * 4096));
  CHECK(sizes(form("vllm", 3), 64, CacheTensor::kKeys) == std::pair<Index, Index>(26, 32));
  CHECK(sizes(form("vllm", 4), 64, CacheTensor::kValues) == std::pair<Index, Index>(36, 0));
  CHECK(sizes({{"rotation", word("hadamard_signs")}, {"bits", count(1)}}, 64, CacheTensor::kKeys) ==
        std::pair<Index, Index>(10, 8 + 8));
  CHECK(sizes(form("mse", 3), 5, CacheTensor::kKeys).first == 4);
}

TEST_CASE("everything is stored on arrival but the residual") {
  const MadeCodec all = made("turboquant", form("mse", 2), 8);
  CHECK(all.codec->written(1, 0) == 1);
  CHECK(all.codec->written(40, 30) == 40);
  const MadeCodec some = made("turboquant", {{"residual", count(10)}}, 8);
  CHECK(some.codec->written(9, 0) == 0);
  CHECK(some.codec->written(40, 30) == 30);
}

TEST_CASE("widths and parameters that do not fit are refused with a remedy") {
  const std::string skip = skip_of("turboquant", {{"rotation", word("hadamard_signs")}}, 48);
  CHECK(skip.find("48") != std::string::npos);
  CHECK(skip.find("choose rotation haar") != std::string::npos);
  CHECK(skip_of("turboquant", form("vllm", 3), 48).find("choose form mse") != std::string::npos);
  CHECK(skip_of("turboquant", {{"codebook", word("beta")}}, 2).find("gaussian") !=
        std::string::npos);
  CHECK(skip_of("turboquant", {}, 48).empty());
  CHECK_THROWS_WITH(codec_params(codec_named("turboquant"), form("vllm", 2)),
                    doctest::Contains("bits must be 3 or 4"));
  for (const auto& [name, value] : Given{{"rotation", word("haar")}, {"codebook", word("beta")}}) {
    Given given = form("vllm", 3);
    given.emplace_back(name, value);
    CHECK_THROWS_WITH(codec_params(codec_named("turboquant"), given),
                      doctest::Contains(name.c_str()));
  }
}

TEST_CASE("EDEN's scales are the least-squares factor, and the one that keeps <x, x^>") {
  const Index d = 24;
  const Numbers matrix = rotation("haar", d);
  for (const int bits : {1, 2, 4}) {
    const Numbers points = lloyd_max_points(normal_density(), bits);
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Numbers x = normal_numbers(d, 100 + seed, 3.0);
      Reals u(x.begin(), x.end());
      const Real rho = size_of(u);
      for (Real& each : u) each /= rho;
      const Reals c = coded(u, matrix, points);
      Real uc = 0;
      Real cc = 0;
      for (std::size_t k = 0; k < u.size(); ++k) uc += u[k] * c[k], cc += c[k] * c[k];
      const auto scaled = [&](Real s) {
        Reals out = c;
        for (Real& each : out) each *= half(rho * s);
        return out;
      };
      Given given = form("mse", bits);
      const Numbers one = round_trip("turboquant", given, d, x);
      given.emplace_back("scale", word("eden"));
      const Numbers eden = round_trip("turboquant", given, d, x);
      CHECK(largest_difference(eden, scaled(uc / cc)) < 1e-12);
      CHECK(squared_error(eden, x) < squared_error(one, x) * 1.0001);  // binary16 rounds both
      given.back().second = word("eden_unbiased");
      const Numbers unbiased = round_trip("turboquant", given, d, x);
      CHECK(largest_difference(unbiased, scaled(1 / uc)) < 1e-12);
      Real inner = 0;
      for (std::size_t k = 0; k < x.size(); ++k) inner += static_cast<Real>(x[k]) * unbiased[k];
      CHECK(std::fabs(static_cast<double>(inner / (rho * rho)) - 1.0) < 0x1p-11);
    }
  }
  const Given given = {{"scale", word("eden")}};
  CHECK(round_trip("turboquant", given, 4, {0, 0, 0, 0}) == Numbers{0, 0, 0, 0});
  CHECK(made("turboquant", given, d).codec->bytes() == made("turboquant", {}, d).codec->bytes());
  CHECK_THROWS_AS(made("turboquant", {{"form", word("prod")}, {"scale", word("eden")}}, d),
                  std::invalid_argument);
}

}  // namespace turboquant_test
}  // namespace kvbench::test
