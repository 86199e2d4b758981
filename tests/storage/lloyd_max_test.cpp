// The best points of scalar quantisers: worked densities, published numbers, and each point as the
// mean of its cell by closed forms.
#include "storage/lloyd_max.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

namespace kvbench::test {
namespace lloyd_max_test {

using Real = long double;
using Points = std::vector<double>;

// Integrals of a density on (-end, end): its mass and its first moment below x.
struct Integrals {
  Real end;
  std::function<Real(Real)> mass;
  std::function<Real(Real)> first;
};

Integrals normal_integrals() {
  return {std::numeric_limits<Real>::infinity(),
          [](Real x) { return std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2; },
          [](Real x) { return -std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>); }};
}

// The integrals of a coordinate of a unit vector in four dimensions, the half circle.
Integrals half_circle_integrals() {
  return {1, [](Real t) { return (t * std::sqrt(1 - t * t) + std::asin(t)) / 2; },
          [](Real t) { return -std::pow(1 - t * t, Real{1.5}) / 3; }};
}

std::vector<Real> borders(const Points& points, Real end) {
  std::vector<Real> out = {-end};
  for (std::size_t i = 1; i < points.size(); ++i) {
    out.push_back((static_cast<Real>(points[i - 1]) + points[i]) / 2);
  }
  out.push_back(end);
  return out;
}

// The largest distance of a point from the mean of its cell.
double off_centre(const Points& points, const Integrals& of) {
  const std::vector<Real> at = borders(points, of.end);
  Real worst = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Real mean =
        (of.first(at[i + 1]) - of.first(at[i])) / (of.mass(at[i + 1]) - of.mass(at[i]));
    worst = std::max(worst, std::fabs(mean - points[i]));
  }
  return static_cast<double>(worst);
}

// Mean squared error of N(0, 1) rounded to points: E x^2 - 2 E x c + E c^2.
double distortion(const Points& points) {
  const Integrals of = normal_integrals();
  const std::vector<Real> at = borders(points, of.end);
  Real out = 1;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Real mass = of.mass(at[i + 1]) - of.mass(at[i]);
    const Real first = of.first(at[i + 1]) - of.first(at[i]);
    out += points[i] * (points[i] * mass - 2 * first);
  }
  return static_cast<double>(out);
}

void check_upper_half(const Points& points, const Points& half) {
  REQUIRE(points.size() == 2 * half.size());
  for (std::size_t i = 0; i < half.size(); ++i) {
    CHECK(std::fabs(points[half.size() + i] - half[i]) < 0.6e-6);
    CHECK(points[half.size() - 1 - i] == -points[half.size() + i]);
  }
}

TEST_CASE("points of N(0, 1) are the published ones, symmetric") {
  check_upper_half(lloyd_max_points(normal_density(), 1), {0.797885});
  check_upper_half(lloyd_max_points(normal_density(), 2), {0.452780, 1.510418});
  check_upper_half(lloyd_max_points(normal_density(), 3), {0.245094, 0.756005, 1.343909, 2.151946});
  check_upper_half(lloyd_max_points(normal_density(), 4), {0.128395, 0.388048, 0.656759, 0.942340,
                                                           1.256231, 1.618046, 2.069017, 2.732590});
}

TEST_CASE("each point is the mean of its cell; one that is a step off is not") {
  for (int bits = 1; bits <= 4; ++bits) {
    Points normal = lloyd_max_points(normal_density(), bits);
    CHECK(off_centre(normal, normal_integrals()) < 1e-14);
    Points circle = lloyd_max_points(sphere_density(4), bits);
    for (double& x : circle) x /= 2;
    CHECK(off_centre(circle, half_circle_integrals()) < 1e-14);
    normal.back() += 1e-12;
    CHECK(off_centre(normal, normal_integrals()) > 1e-13);
  }
  CHECK(std::fabs(lloyd_max_points(normal_density(), 1)[1] - std::sqrt(2 / std::numbers::pi)) <
        1e-15);
}

TEST_CASE("in three dimensions a coordinate is uniform, and so are the points") {
  for (int bits = 1; bits <= 4; ++bits) {
    const Points points = lloyd_max_points(sphere_density(3), bits);
    const auto count = static_cast<double>(points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double even = std::sqrt(3.0) * ((2.0 * static_cast<double>(i) + 1.0) / count - 1.0);
      CHECK(std::fabs(points[i] - even) < 3e-14);
    }
  }
}

TEST_CASE("squared errors of N(0, 1) are the published ones and below (sqrt 3 pi / 2) 4^-b") {
  const Points published = {0.3634, 0.1175, 0.03454, 0.00950};
  for (int bits = 1; bits <= 4; ++bits) {
    Points points = lloyd_max_points(normal_density(), bits);
    const double least = distortion(points);
    CHECK(least == doctest::Approx(published[bits - 1]).epsilon(1e-3));
    CHECK(least < std::sqrt(3.0) * std::numbers::pi / 2 * std::pow(4.0, -bits));
    for (double& x : points) x *= 1.001;
    CHECK(distortion(points) > least);
  }
}

TEST_CASE("codes of many numbers are those of each, middles and ends included") {
  for (int bits = 1; bits <= 4; ++bits) {
    const Codebook book(lloyd_max_points(normal_density(), bits));
    std::vector<double> x = {-1e300, 1e300, 0.0, -0.0};
    for (std::size_t i = 0; i < book.points().size(); ++i) {
      x.push_back(book.points()[i]);
      if (i == 0) continue;
      const double middle = 0.5 * (book.points()[i - 1] + book.points()[i]);
      for (const double to : {-10.0, 10.0}) x.push_back(std::nextafter(middle, to));
      x.push_back(middle);
    }
    std::vector<std::uint8_t> codes(x.size());
    book.codes_of(x.data(), std::ssize(x), codes.data());
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(codes[i] == book.code_of(x[i]));
  }
}

TEST_CASE("a number goes to the nearest point, from the middle to the upper one") {
  const Codebook book({-3.0, -1.0, 1.0, 5.0});
  CHECK(book.code_of(-100.0) == 0);
  CHECK(book.code_of(-2.0) == 1);
  CHECK(book.code_of(-2.1) == 0);
  CHECK(book.code_of(0.0) == 2);
  CHECK(book.code_of(std::nextafter(3.0, 0.0)) == 2);
  CHECK(book.code_of(3.0) == 3);
  CHECK(book.point(3) == 5.0);
}

}  // namespace lloyd_max_test
}  // namespace kvbench::test
