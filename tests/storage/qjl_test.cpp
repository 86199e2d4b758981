// qjl against the formulas written plainly in long double, and its facts.
#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "codec_support.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "storage/half.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace qjl_test {

using Real = long double;

Value word(const char* text) { return Value{std::string(text)}; }
Value count(std::int64_t x) { return Value{x}; }

struct Sizes {
  Index d = 6;
  Index bits = 24;
  Index outliers = 2;
  Index outlier_bits = 16;
  Index group = 4;
};

Given given_of(const Sizes& s, const char* projection) {
  return {{"bits", count(s.bits)},   {"outliers", count(s.outliers)},
          {"group", count(s.group)}, {"outlier_bits", count(s.outlier_bits)},
          {"buffer", count(8)},      {"projection", word(projection)}};
}

Numbers projection(const Sizes& s, const char* name) {
  const CounterRng draw(0, StreamId{}.hash(), "storage/projection");
  if (std::string(name) == "gaussian") return normal_matrix(draw, s.bits, s.d);
  Numbers out = stacked_haar_matrices(draw, s.bits, s.d);
  for (double& x : out) x *= std::sqrt(static_cast<double>(s.d));
  return out;
}

Numbers keys_of(const Sizes& s, unsigned seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  Numbers out(static_cast<std::size_t>(s.group * s.d));
  for (std::size_t i = 0; i < out.size(); ++i) {
    // Channels 1 and 4 are large.
    const auto channel = static_cast<Index>(i) % s.d;
    out[i] = normal(rng) * (channel == 1 || channel == 4 ? 8.0 : 1.0);
  }
  return out;
}

Real half(Real x) { return from_half(half_bits(static_cast<double>(x))); }

// The score of a query with a key as the release's kernel computes it from signs and the query's
// projections: both parts with their own norm.
Real kernel_score(const Sizes& s, const Numbers& S, const double* key,
                  const std::vector<bool>& outlier, const Numbers& query) {
  const auto d = static_cast<std::size_t>(s.d);
  Real square = 0;
  Real outer_square = 0;
  for (std::size_t c = 0; c < d; ++c) {
    square += static_cast<Real>(key[c]) * key[c];
    if (outlier[c]) outer_square += static_cast<Real>(key[c]) * key[c];
  }
  const Real size = half(std::sqrt(square));
  const Real outer = half(std::sqrt(outer_square));
  const Real inner = std::sqrt(std::max(Real{0}, size * size - outer * outer));
  Real of_inner = 0;
  Real of_outer = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(s.bits); ++r) {
    Real key_inner = 0;
    Real key_outer = 0;
    Real query_inner = 0;
    Real query_outer = 0;
    for (std::size_t c = 0; c < d; ++c) {
      const Real x = S[r * d + c];
      (outlier[c] ? key_outer : key_inner) += x * key[c];
      (outlier[c] ? query_outer : query_inner) += x * query[c];
    }
    of_inner += key_inner > 0 ? query_inner : -query_inner;
    if (r < static_cast<std::size_t>(s.outlier_bits)) {
      of_outer += key_outer > 0 ? query_outer : -query_outer;
    }
  }
  const Real root = std::sqrt(std::numbers::pi_v<Real> / 2);
  const Real outer_score = root / static_cast<Real>(s.outlier_bits) * outer * of_outer;
  return root / static_cast<Real>(s.bits) * inner * of_inner + (s.outliers > 0 ? outer_score : 0);
}

TEST_CASE("inner products with decoded keys are the scores of the release's kernel") {
  std::mt19937_64 rng(9);
  std::normal_distribution<double> normal;
  Sizes none;
  none.outliers = 0;
  for (const Sizes& s : {Sizes{}, none}) {
    for (const char* name : {"orthogonal", "gaussian"}) {
      const Numbers keys = keys_of(s, 2);
      const Numbers back = round_trip("qjl", given_of(s, name), s.d, keys);
      const Numbers S = projection(s, name);
      std::vector<bool> outlier(6, false);
      outlier[1] = outlier[4] = s.outliers > 0;
      for (Index t = 0; t < s.group; ++t) {
        Numbers query(6);
        for (double& x : query) x = normal(rng);
        Real score = 0;
        for (std::size_t c = 0; c < 6; ++c) {
          score += static_cast<Real>(query[c]) * back[static_cast<std::size_t>(t * s.d) + c];
        }
        CHECK(std::fabs(score - kernel_score(s, S, keys.data() + t * s.d, outlier, query)) < 1e-12);
      }
    }
  }
}

TEST_CASE("outliers are the channels of largest norm over the group, of equal ones the lower") {
  Sizes s;
  s.group = 2;
  const auto outliers = [&](const Numbers& keys) {
    const MadeCodec of = made("qjl", given_of(s, "gaussian"), s.d);
    const Bytes bytes = encoded(*of.codec, s.d, keys);
    return std::pair(std::to_integer<int>(bytes[0]), std::to_integer<int>(bytes[1]));
  };
  CHECK(outliers({5, 1, 1, 1, 0, 1, 0, 1, 1, 1, -6, 1}) == std::pair(0, 4));
  CHECK(outliers({0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0}) == std::pair(1, 2));
  CHECK(outliers({3, 0, 0, 0, 0, 4, 4, 0, 5, 0, 0, 3}) == std::pair(0, 2));
  CHECK(outliers(Numbers(12, 0.0)) == std::pair(0, 1));
}

TEST_CASE("one channel and one projection, worked") {
  // k^ of 3 is sqrt(pi / 2) 3 |s| over eight projections s of one number, whatever their signs.
  Sizes s;
  s.d = 1;
  s.bits = s.outlier_bits = 8;
  s.outliers = 0;
  s.group = 1;
  const Numbers S = projection(s, "gaussian");
  double sum = 0.0;
  for (const double x : S) sum += std::fabs(x);
  const Numbers back = round_trip("qjl", given_of(s, "gaussian"), 1, {3.0});
  CHECK(back[0] == doctest::Approx(std::sqrt(std::numbers::pi / 2) / 8 * 3 * sum).epsilon(1e-14));
  CHECK(round_trip("qjl", given_of(s, "gaussian"), 1, {-3.0})[0] == -back[0]);
}

TEST_CASE("|k_o| that is stored above |k| leaves nothing for the other channels") {
  // 2049 is stored as 2048 or 2050, both norms as the same.
  Sizes s;
  s.outliers = 1;
  s.group = 1;
  const Numbers back = round_trip("qjl", given_of(s, "gaussian"), s.d, {2049.5, 1e-3, 0, 0, 0, 0});
  CHECK(back[1] == 0.0);
  CHECK(std::isfinite(back[0]));
}

TEST_CASE("bytes: (m + m_o + 32) bits of a token, the indices of a group, S once") {
  Given given = {{"bits", count(256)}};
  const MadeCodec of = made("qjl", given, 128);
  CHECK(of.codec->group() == 32);
  CHECK(of.codec->bytes() == 32 * (256 + 256 + 32) / 8 + 8);
  CHECK(of.codec->shared_bytes() == 4 * 256 * 128);
  CHECK(made("qjl", {{"outliers", count(0)}}, 128).codec->bytes() == 32 * (256 + 16) / 8);
  CHECK(made("qjl", {}, 300).codec->bytes() == 32 * (256 + 256 + 32) / 8 + 16);
}

TEST_CASE("a token is appended, then whole buffers are sketched") {
  const MadeCodec of = made("qjl", {}, 64);
  CHECK(of.codec->written(127, 100) == 0);
  CHECK(of.codec->written(128, 100) == 128);
  CHECK(of.codec->written(129, 100) == 128);
  CHECK(of.codec->written(1023, 960) == 896);
}

TEST_CASE("values of the release are kivi's with span prompt: all but the buffer, and none later") {
  const Given given = {{"span", word("prompt")}};
  const MadeCodec values = made("kivi", given, 64, {}, CacheTensor::kValues);
  CHECK(values.codec->once());
  CHECK(values.codec->written(961, 960) == 832);
  CHECK(values.codec->written(1023, 960) == 832);
  CHECK(values.codec->written(101, 100) == 0);
  const MadeCodec keys = made("kivi", given, 64);
  CHECK(keys.codec->written(961, 960) == 896);
  CHECK(keys.codec->written(1100, 960) == 896);
  CHECK_FALSE(made("kivi", {}, 64).codec->once());
}

TEST_CASE("parameters and widths that do not fit are refused") {
  const CodecDescription& qjl = codec_named("qjl");
  CHECK_FALSE(qjl.of_values);
  CHECK_THROWS_WITH(codec_params(qjl, {{"bits", count(260)}}), doctest::Contains("multiple of 8"));
  CHECK_THROWS_WITH(codec_params(qjl, {{"outlier_bits", count(264)}}),
                    doctest::Contains("at most bits"));
  CHECK_NOTHROW(codec_params(qjl, {{"bits", count(64)}, {"outliers", count(0)}}));
  CHECK_THROWS_WITH(codec_params(qjl, {{"buffer", count(100)}}),
                    doctest::Contains("multiple of group"));
  CHECK(skip_of("qjl", {{"outliers", count(8)}}, 8).find("choose fewer outliers") !=
        std::string::npos);
  CHECK(skip_of("qjl", {{"outliers", count(7)}}, 8).empty());
}

}  // namespace qjl_test
}  // namespace kvbench::test
