// Laws of codecs that draw: errors of turboquant's points on the sphere, unbiased inner products
// with their exact variance, the length that Haar projections give, angles of normal vectors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"
#include "statistical/false_alarm.hpp"
#include "storage/bit_stream.hpp"
#include "storage/codec_registry.hpp"
#include "storage/lloyd_max.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace storage_laws_test {

using Vector = std::vector<double>;
using Given = std::vector<std::pair<std::string, Value>>;
using Real = long double;

constexpr std::int64_t kVectors = 3000;
constexpr std::int64_t kSketches = 10000;

Value count(std::int64_t x) { return Value{x}; }
Value word(const char* text) { return Value{std::string(text)}; }

std::unique_ptr<Codec> made(const char* id, const Given& given, const Stream& stream,
                            std::uint32_t seed) {
  const CodecDescription& codec = *find_codec(id);
  Params params;
  for (const Parameter& parameter : codec.parameters) {
    params.set(parameter.name, *parameter.default_value);
  }
  for (const auto& [name, value] : given) params.set(name, value);
  return codec.create(params, {stream, 0, seed, CacheTensor::kKeys});
}

Stream stream_of_width(Index d) {
  Stream stream;
  stream.shape.d = stream.shape.dv = d;
  return stream;
}

Vector back(const Codec& codec, const Vector& x) {
  std::vector<std::byte> code(codec.bytes());
  codec.encode({x.data(), 1, std::ssize(x)}, code.data());
  Vector out(x.size());
  codec.decode(code.data(), {out.data(), 1, std::ssize(x)});
  return out;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

Vector uniform_unit_vector(Index d, std::uint32_t number) {
  Vector out = normal_vector(CounterRng(first_seed(), 0, "test/sphere"), d, number);
  const double size = std::sqrt(dot(out, out));
  for (double& x : out) x /= size;
  return out;
}

// Simpson's rule.
Real integral(const std::function<Real(Real)>& f, Real low, Real high) {
  constexpr int kSteps = 20000;
  const Real step = (high - low) / kSteps;
  Real sum = f(low) + f(high);
  for (int i = 1; i < kSteps; ++i) sum += f(low + step * i) * (i % 2 == 1 ? 4 : 2);
  return sum * step / 3;
}

// E |u - u^|^2 over uniform unit vectors: d times that of a coordinate, whose density is
// (1 - t^2)^((d - 3) / 2), rounded to points; `step`: and decoded to points that many further.
double sphere_error(const Vector& points, Index d, std::size_t step = 0) {
  const auto density = [&](Real t) { return std::pow(1 - t * t, static_cast<Real>(d - 3) / 2); };
  const Real all = integral(density, -1, 1);
  Real sum = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Real low = i == 0 ? Real{-1} : (static_cast<Real>(points[i - 1]) + points[i]) / 2;
    const Real high =
        i + 1 == points.size() ? Real{1} : (static_cast<Real>(points[i]) + points[i + 1]) / 2;
    const Real point = points[std::min(i + step, points.size() - 1)];
    sum += integral([&](Real t) { return (t - point) * (t - point) * density(t); }, low, high);
  }
  return static_cast<double>(sum / all * static_cast<Real>(d));
}

Vector sphere_points(const EvenDensity& density, int bits, Index d) {
  Vector points = lloyd_max_points(density, bits);
  for (double& x : points) x /= std::sqrt(static_cast<double>(d));
  return points;
}

double mean_p(const Vector& samples, double expectation) {
  return normal_two_sided(mean_z(samples, expectation));
}

// |u - u^|^2 of uniform unit vectors.
Vector squared_errors(const char* book, std::int64_t bits, Index d, std::int64_t runs) {
  const Stream stream = stream_of_width(d);
  const auto codec =
      made("turboquant", {{"bits", count(bits)}, {"codebook", word(book)}}, stream, first_seed());
  Vector out;
  for (std::int64_t run = 0; run < runs; ++run) {
    const Vector u = uniform_unit_vector(d, static_cast<std::uint32_t>(run));
    Vector off = back(*codec, u);
    for (std::size_t k = 0; k < u.size(); ++k) off[k] -= u[k];
    out.push_back(dot(off, off));
  }
  return out;
}

// <q, k^> by seed.
Vector products(const char* id, const Given& given, const Vector& key, const Vector& query,
                std::int64_t runs) {
  const Stream stream = stream_of_width(std::ssize(key));
  Vector out;
  for (std::int64_t run = 0; run < runs; ++run) {
    const auto codec = made(id, given, stream, first_seed() + static_cast<std::uint32_t>(run));
    out.push_back(dot(query, back(*codec, key)));
  }
  return out;
}

Vector squares_about(const Vector& samples, double centre) {
  Vector out;
  for (const double x : samples) out.push_back((x - centre) * (x - centre));
  return out;
}

Given sketch(std::int64_t bits, std::int64_t outliers, const char* projection) {
  return {{"bits", count(bits)}, {"outlier_bits", count(bits)}, {"outliers", count(outliers)},
          {"group", count(1)},   {"buffer", count(1)},          {"projection", word(projection)}};
}

// Norms that binary16 holds: 13 of all, 12 of the largest channel, 5 of the others.
const Vector kKey = {3, 0, 0, 12, 0, 0, -4, 0};
const Vector kQuery = {1, 0.5, -1, 0.25, 2, -0.5, 0.75, 1};

// How often the codes of `level` occur in blocks of normal numbers, by han's bytes: 16 bits of the
// radius, then 8 codes of 4 bits, and 4, 2 and 1 of 2.
std::vector<std::int64_t> angle_counts(int level, std::int64_t blocks) {
  const Stream stream = stream_of_width(16);
  const auto codec = made("polarquant", {}, stream, first_seed());
  std::vector<std::int64_t> counts(level == 1 ? 16 : 4, 0);
  const CounterRng draw(first_seed(), 1, "test/angles");
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Vector x = normal_vector(draw, 16, static_cast<std::uint32_t>(block));
    std::vector<std::byte> code(codec->bytes());
    codec->encode({x.data(), 1, 16}, code.data());
    BitReader in(code.data());
    in.get(16);
    for (int at = 1, left = 8; left > 0; ++at, left /= 2) {
      for (int i = 0; i < left; ++i) {
        const std::uint32_t angle = in.get(at == 1 ? 4 : 2);
        if (at == level) ++counts[angle];
      }
    }
  }
  return counts;
}

// The probabilities of the codes of a level: the density sin(2 psi)^power between the middles of
// points.
std::vector<double> angle_law(int power, const Vector& points) {
  const auto density = [&](Real psi) { return std::pow(std::sin(2 * psi), Real(power)); };
  const Real end = std::numbers::pi_v<Real> / 2;
  const Real all = integral(density, 0, end);
  std::vector<double> out;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Real low = i == 0 ? Real{0} : (static_cast<Real>(points[i - 1]) + points[i]) / 2;
    const Real high =
        i + 1 == points.size() ? end : (static_cast<Real>(points[i]) + points[i + 1]) / 2;
    out.push_back(static_cast<double>(integral(density, low, high) / all));
  }
  return out;
}

TEST_CASE("turboquant's squared error on the sphere is that of its points") {
  const Index d = 64;
  HonestAlarm alarm("turboquant's errors on the sphere");
  for (int bits = 1; bits <= 4; ++bits) {
    for (const char* book : {"gaussian", "beta"}) {
      const bool beta = std::string(book) == "beta";
      const EvenDensity density = beta ? sphere_density(d) : normal_density();
      const double expected = sphere_error(sphere_points(density, bits, d), d);
      CHECK(expected < std::sqrt(3.0) * std::numbers::pi / 2 * std::pow(4.0, -bits));
      const Vector errors = squared_errors(book, bits, d, seed_count(kVectors));
      alarm.check(mean_p(errors, expected));
      // A codebook that is read one step off.
      CHECK(mean_p(errors, sphere_error(sphere_points(density, bits, d), d, 1)) < alarm_level());
    }
  }
}

TEST_CASE("turboquant's prod is unbiased, and one bit has the exact variance") {
  HonestAlarm alarm("turboquant's inner products");
  const double exact = dot(kKey, kQuery);
  for (std::int64_t bits = 1; bits <= 3; ++bits) {
    const Vector found = products("turboquant", {{"form", word("prod")}, {"bits", count(bits)}},
                                  kKey, kQuery, seed_count(kSketches));
    alarm.check(mean_p(found, exact));
    if (bits > 1) continue;
    // (pi / 2 |q|^2 |k|^2 - <q, k>^2) / d, below the paper's pi / (2 d) |q|^2 |k|^2.
    const double variance =
        (std::numbers::pi / 2 * dot(kQuery, kQuery) * dot(kKey, kKey) - exact * exact) / 8;
    alarm.check(mean_p(squares_about(found, exact), variance));
    CHECK(mean_p(squares_about(found, exact), 8 * variance / 7) < alarm_level());
  }
  const Vector biased =
      products("turboquant", {{"form", word("mse")}, {"bits", count(1)}}, kKey, kQuery, kSketches);
  CHECK(mean_p(biased, exact) < alarm_level());
}

TEST_CASE("qjl with normal projections is unbiased with the exact variance, outliers or not") {
  HonestAlarm alarm("qjl's inner products");
  const double exact = dot(kKey, kQuery);
  const Vector plain =
      products("qjl", sketch(16, 0, "gaussian"), kKey, kQuery, seed_count(kSketches));
  alarm.check(mean_p(plain, exact));
  const double variance =
      (std::numbers::pi / 2 * dot(kQuery, kQuery) * dot(kKey, kKey) - exact * exact) / 16;
  alarm.check(mean_p(squares_about(plain, exact), variance));
  CHECK(mean_p(squares_about(plain, exact), variance * 16 / 14) < alarm_level());
  alarm.check(mean_p(
      products("qjl", sketch(16, 1, "gaussian"), kKey, kQuery, seed_count(kSketches)), exact));
}

TEST_CASE("qjl with Haar projections is c_d too long, as released") {
  HonestAlarm alarm("qjl's length");
  // sqrt(d / 2) Gamma(d / 2) / Gamma((d + 1) / 2) of 8 channels: 1.032.
  const double longer = 2.0 * std::tgamma(4.0) / std::tgamma(4.5);
  const Vector found =
      products("qjl", sketch(16, 0, "orthogonal"), kKey, kKey, seed_count(kSketches));
  alarm.check(mean_p(found, longer * dot(kKey, kKey)));
  CHECK(mean_p(found, dot(kKey, kKey)) < alarm_level());
}

TEST_CASE("polarquant's angles of normal vectors follow their laws") {
  HonestAlarm alarm("polarquant's angles");
  const std::int64_t blocks = seed_count(20000);
  alarm.check(goodness_of_fit(angle_counts(1, blocks), std::vector<double>(16, 1.0 / 16)));
  const std::vector<Vector> points = {{0.309756117, 0.633980240, 0.936816087, 1.261040210},
                                      {0.426249693, 0.674384998, 0.896411329, 1.144546634},
                                      {0.524214091, 0.705909406, 0.864886921, 1.046582236}};
  for (int level = 2; level <= 4; ++level) {
    const Vector& of_level = points[level - 2];
    const int power = (1 << (level - 1)) - 1;
    alarm.check(goodness_of_fit(angle_counts(level, blocks), angle_law(power, of_level)));
    // As if the angles were a level lower's.
    CHECK(goodness_of_fit(angle_counts(level, 20000), angle_law((power - 1) / 2, of_level)) <
          alarm_level());
  }
}

}  // namespace storage_laws_test
}  // namespace kvbench::test
