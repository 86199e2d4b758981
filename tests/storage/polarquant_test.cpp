// polarquant, both semantics: against the formulas written plainly in long double, and their facts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "codec_support.hpp"
#include "core/rotation.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "storage/half.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace polarquant_test {

using Real = long double;
using Reals = std::vector<Real>;
constexpr Real kPi = std::numbers::pi_v<Real>;

Value word(const char* text) { return Value{std::string(text)}; }
Value count(std::int64_t x) { return Value{x}; }

Numbers normal_numbers(std::size_t size, unsigned seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  Numbers out(size);
  for (double& x : out) x = normal(rng);
  return out;
}

Real half(Real x) { return from_half(half_bits(static_cast<double>(x))); }

Real size_of(const Numbers& x) {
  Real sum = 0;
  for (const double each : x) sum += static_cast<Real>(each) * each;
  return std::sqrt(sum);
}

// Published points of levels 2 to 4, to six digits.
const std::vector<Reals> kPoints = {{0.309756L, 0.633980L, 0.936816L, 1.261040L},
                                    {0.426250L, 0.674385L, 0.896411L, 1.144547L},
                                    {0.524214L, 0.705909L, 0.864887L, 1.046582L}};

// A block decoded: its angles as they are stored, from the top radius down.
Reals naive_block(const Reals& y) {
  Reals radii = y;
  std::vector<Reals> levels;
  for (std::size_t level = 1; radii.size() > 1; ++level) {
    Reals angles;
    Reals next;
    for (std::size_t i = 0; i < radii.size(); i += 2) {
      Real angle = std::atan2(radii[i + 1], radii[i]);
      if (level == 1) {
        if (angle < 0) angle += 2 * kPi;
        angle = (std::floor(angle / (kPi / 8)) + 0.5L) * kPi / 8;
      } else {
        const Reals& points = kPoints[level - 2];
        angle = *std::min_element(points.begin(), points.end(), [&](Real a, Real b) {
          return std::fabs(a - angle) < std::fabs(b - angle);
        });
      }
      angles.push_back(angle);
      next.push_back(std::hypot(radii[i], radii[i + 1]));
    }
    levels.push_back(angles);
    radii = next;
  }
  Reals out = {half(radii[0])};
  for (std::size_t level = levels.size(); level-- > 0;) {
    Reals next;
    for (std::size_t i = 0; i < out.size(); ++i) {
      next.push_back(out[i] * std::cos(levels[level][i]));
      next.push_back(out[i] * std::sin(levels[level][i]));
    }
    out = next;
  }
  return out;
}

Reals naive_han(const Numbers& x) {
  const std::size_t d = x.size();
  const Numbers matrix =
      haar_matrix(CounterRng(0, StreamId{}.hash(), "storage/rotation"), static_cast<Index>(d));
  Reals y(d, 0);
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j < d; ++j) y[i] += static_cast<Real>(matrix[i * d + j]) * x[j];
  }
  Reals out(d, 0);
  for (std::size_t first = 0; first < d; first += 16) {
    const auto at = y.begin() + static_cast<std::ptrdiff_t>(first);
    const Reals block = naive_block(Reals(at, at + 16));
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < d; ++j) out[j] += matrix[(first + i) * d + j] * block[i];
    }
  }
  return out;
}

Given wu(std::int64_t group, const char* scales = "exact", std::int64_t bits = 4) {
  return {{"semantics", word("wu")}, {"group", count(group)},     {"residual", count(group)},
          {"scales", word(scales)},  {"angle_bits", count(bits)}, {"radius_bits", count(bits)}};
}

double largest(const Numbers& a, const Numbers& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]));
  return worst;
}

TEST_CASE("han is its formulas, with the published points") {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Numbers x = normal_numbers(48, seed);
    const Numbers back = round_trip("polarquant", {}, 48, x);
    const Reals other = naive_han(x);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::fabs(back[i] - other[i]) < 1e-5L);
  }
}

TEST_CASE("han keeps norms to half a unit of binary16") {
  const Numbers x = normal_numbers(128, 20);
  const Real size = size_of(x);
  CHECK(std::fabs(size_of(round_trip("polarquant", {}, 128, x)) - size) < std::ldexp(size, -11));
}

TEST_CASE("han: 62 bits of 16 numbers, of the prompt alone, 16 divides the width") {
  CHECK(made("polarquant", {}, 64).codec->bytes() == 31);
  CHECK(made("polarquant", {}, 16).codec->bytes() == 8);
  CHECK(made("polarquant", {}, 64).codec->shared_bytes() == 4 * 64 * 64 + 4 * 12);
  CHECK(made("polarquant", {}, 64).codec->written(1000, 960) == 960);
  CHECK(made("polarquant", {}, 64).codec->written(3, 0) == 0);
  CHECK(skip_of("polarquant", {}, 40).find("choose turboquant") != std::string::npos);
  CHECK_THROWS_WITH(codec_params(codec_named("polarquant"), {{"group", count(64)}}),
                    doctest::Contains("semantics: wu"));
}

TEST_CASE("wu, worked: two keys of one pair in halves of their range") {
  // Radii 1 and 2 become 1.25 and 1.75, angles 0 and pi / 2 become pi / 8 and 3 pi / 8.
  const Numbers back = round_trip("polarquant", wu(2, "exact", 1), 2, {1, 0, 0, 2});
  const double pi = std::numbers::pi;
  CHECK(largest(back, {1.25 * std::cos(pi / 8), 1.25 * std::sin(pi / 8),
                       1.75 * std::cos(3 * pi / 8), 1.75 * std::sin(3 * pi / 8)}) < 1e-15);
}

TEST_CASE("wu: angles and radii are half a step off at most, and pairs are RoPE's") {
  const Index d = 6;
  const Numbers keys = normal_numbers(8 * 6, 23);
  for (const bool interleaved : {false, true}) {
    const CodecDescription& codec = codec_named("polarquant");
    Stream stream;
    stream.shape.tokens = 8;
    stream.shape.d = d;
    auto rope = std::make_shared<Rope>();
    rope->interleaved = interleaved;
    stream.shape.rope = rope;
    const auto made_codec =
        codec.create(codec_params(codec, wu(8)), {stream, 8, 0, CacheTensor::kKeys});
    const Numbers back = decoded(*made_codec, d, encoded(*made_codec, d, keys));
    for (Index pair = 0; pair < 3; ++pair) {
      const Index a = interleaved ? 2 * pair : pair;
      const Index b = interleaved ? 2 * pair + 1 : pair + 3;
      std::vector<double> radii;
      std::vector<double> angles;
      const auto polar = [&](const Numbers& of, Index t) {
        const double x = of[t * d + a];
        const double y = of[t * d + b];
        const double angle = std::atan2(y, x);
        return std::pair(std::hypot(x, y), angle < 0 ? angle + 2 * std::numbers::pi : angle);
      };
      for (Index t = 0; t < 8; ++t) {
        radii.push_back(polar(keys, t).first);
        angles.push_back(polar(keys, t).second);
      }
      const auto step = [](const std::vector<double>& x) {
        const auto [low, high] = std::minmax_element(x.begin(), x.end());
        return (*high - *low) / 16;
      };
      for (Index t = 0; t < 8; ++t) {
        const auto [radius, angle] = polar(back, t);
        const auto i = static_cast<std::size_t>(t);
        CHECK(std::fabs(radius - radii[i]) <= 0.5 * step(radii) + 1e-14);
        CHECK(std::fabs(angle - angles[i]) <= 0.5 * step(angles) + 1e-14);
      }
    }
  }
}

TEST_CASE("wu: one more position of RoPE does more than turn what comes back, angles wrap at 0") {
  Rope rope;
  rope.inv_freq = {1.0, 0.3};
  const Turn turn(rope, 1.0);
  const Numbers keys = normal_numbers(16 * 4, 24);
  Numbers turned(keys.size());
  for (std::size_t t = 0; t < 16; ++t) turn.apply(keys.data() + 4 * t, 4, turned.data() + 4 * t);
  const Numbers back = round_trip("polarquant", wu(16), 4, keys);
  Numbers expected(keys.size());
  for (std::size_t t = 0; t < 16; ++t) turn.apply(back.data() + 4 * t, 4, expected.data() + 4 * t);
  CHECK(largest(round_trip("polarquant", wu(16), 4, turned), expected) > 0.01);
}

TEST_CASE("wu: bytes, timing and what is refused") {
  Given given = {{"semantics", word("wu")}};
  CHECK(made("polarquant", given, 64).codec->bytes() == 128 * 64 / 2 + 32 * 8);  // 4.25 bits
  given.emplace_back("scales", word("exact"));
  CHECK(made("polarquant", given, 64).codec->bytes() == 128 * 64 / 2 + 32 * 32);
  const MadeCodec of = made("polarquant", given, 64);
  CHECK(of.codec->group() == 128);
  CHECK(of.codec->shared_bytes() == 0);
  CHECK(of.codec->written(0, 0) == 0);
  CHECK(of.codec->written(128, 0) == 0);
  CHECK(of.codec->written(129, 0) == 128);
  CHECK(of.codec->written(961, 960) == 896);
  CHECK(skip_of("polarquant", given, 64, CacheTensor::kValues).find("han") != std::string::npos);
  CHECK(skip_of("polarquant", given, 5).find("choose turboquant") != std::string::npos);
  given.emplace_back("residual", count(100));
  CHECK_THROWS_WITH(codec_params(codec_named("polarquant"), given),
                    doctest::Contains("multiple of group"));
}

}  // namespace polarquant_test
}  // namespace kvbench::test
