#include "storage/angle_codes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "numerics/counter_rng.hpp"

namespace kvbench::test {
namespace angle_codes_test {

using Pairs = std::vector<std::pair<double, double>>;
using Codes = std::vector<std::uint64_t>;

// Every number of them side by side with others, and alone.
Codes found(int level, const Pairs& pairs) {
  std::vector<double> x;
  std::vector<double> y;
  for (const auto& [across, up] : pairs) {
    x.push_back(across);
    y.push_back(up);
  }
  Codes together(pairs.size());
  find_angle_codes(level, x.data(), y.data(), std::ssize(x), together.data());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::uint64_t alone = 0;
    find_angle_codes(level, &x[i], &y[i], 1, &alone);
    CHECK(alone == together[i]);
  }
  return together;
}

// The codes by the definition, pair by pair.
Codes canonical(int level, const Pairs& pairs) {
  Codes out;
  for (const auto& [x, y] : pairs) out.push_back(angle_code(level, x, y));
  return out;
}

// An angle in (low, high) where the code changes, as near as doubles are.
double border_between(int level, double low, double high) {
  const auto code_at = [&](double angle) {
    return angle_code(level, std::cos(angle), std::sin(angle));
  };
  const std::uint64_t below = code_at(low);
  for (;;) {
    const double middle = 0.5 * (low + high);
    if (middle <= low || middle >= high) return low;
    (code_at(middle) == below ? low : high) = middle;
  }
}

std::vector<double> borders(int level) {
  std::vector<double> out;
  const double end = level == 1 ? 2 * std::numbers::pi : std::numbers::pi / 2;
  constexpr int kSteps = 200;
  for (int i = 0; i + 1 < kSteps; ++i) {
    const double low = (i + 0.5) * end / kSteps;
    const double high = (i + 1.5) * end / kSteps;
    if (angle_code(level, std::cos(low), std::sin(low)) ==
        angle_code(level, std::cos(high), std::sin(high))) {
      continue;
    }
    out.push_back(border_between(level, low, high));
  }
  return out;
}

TEST_CASE("angle codes: arcs of the circle by hand") {
  // Arcs of 22.5 degrees: the angles are 26.6, 63.4, and their reflections; 10 and 80 degrees.
  const Pairs pairs = {{1, 0.5},  {0.5, 1},  {-0.5, 1},  {-1, 0.5},   {-1, -0.5},  {-0.5, -1},
                       {0.5, -1}, {1, -0.5}, {1, 0.176}, {0.176, -1}, {-1, -0.176}};
  CHECK(found(1, pairs) == Codes{1, 2, 5, 6, 9, 10, 13, 14, 0, 12, 8});
}

TEST_CASE("angle codes: side by side as the canonical angle of each") {
  for (int level = 1; level <= kAngleLevels; ++level) {
    CAPTURE(level);
    Pairs pairs;
    for (std::uint32_t i = 0; i < 4000; ++i) {
      const double x = 2 * philox_uniform53({1, 2}, i, 0, 0) - 1;
      const double y = 2 * philox_uniform53({1, 2}, i, 1, 0) - 1;
      pairs.emplace_back(level == 1 ? x : std::fabs(x), level == 1 ? y : std::fabs(y));
    }
    const Codes codes = found(level, pairs);
    CHECK(codes == canonical(level, pairs));
    const auto most = static_cast<std::uint64_t>((1 << angle_bits(level)) - 1);
    CHECK(*std::max_element(codes.begin(), codes.end()) == most);
    CHECK(*std::min_element(codes.begin(), codes.end()) == 0);
  }
}

TEST_CASE("angle codes: next to where they change, and where numbers end") {
  for (int level = 1; level <= kAngleLevels; ++level) {
    CAPTURE(level);
    const std::vector<double> at = borders(level);
    CHECK(at.size() == (level == 1 ? 15U : 3U));
    Pairs pairs;
    for (const double border : at) {
      for (const double off : {0.0, 1e-16, 3e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-9}) {
        for (const double angle : {border - off, border + off}) {
          for (const double radius : {1.0, 1.7, 3e-7, 1e-160, 1e-300, 1e-322}) {
            const double x = radius * std::cos(angle);
            const double y = radius * std::sin(angle);
            pairs.emplace_back(x, y);
            pairs.emplace_back(std::nextafter(x, 2.0), y);
            pairs.emplace_back(x, std::nextafter(y, 2.0));
          }
        }
      }
    }
    constexpr double kMinSubnormal = std::numeric_limits<double>::denorm_min();
    for (const double x : {0.0, kMinSubnormal, 1e-300, 1e-12, 1.0}) {
      for (const double y : {0.0, 3 * kMinSubnormal, 1e-300, 1e-13, 1.0}) {
        pairs.emplace_back(x, y);
        if (level > 1) continue;
        pairs.emplace_back(-x, y);
        pairs.emplace_back(x, -y);
        pairs.emplace_back(-x, -y);
      }
    }
    CHECK(found(level, pairs) == canonical(level, pairs));
  }
}

}  // namespace angle_codes_test
}  // namespace kvbench::test
