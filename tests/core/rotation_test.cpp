// Turns by rotary positions: worked, there and back, and the mean of several.
#include "core/rotation.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

namespace kvbench {
namespace rotation_test {

Rope rope_of(std::vector<double> inv_freq, bool interleaved) {
  return {std::move(inv_freq), interleaved};
}

std::vector<double> turned(const Turn& turn, const std::vector<double>& x) {
  std::vector<double> out(x.size());
  turn.apply(x.data(), std::ssize(x), out.data());
  return out;
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::fabs(a[i] - b[i]) < 1e-14);
}

TEST_CASE("a turn, worked: a quarter and a half, in both layouts, and what does not turn") {
  const double quarter = std::numbers::pi / 2;
  const std::vector<double> x{1, 2, 3, 4, 5};
  check_near(turned(Turn(rope_of({quarter, 2 * quarter}, false), 1), x), {-3, -2, 1, -4, 5});
  check_near(turned(Turn(rope_of({quarter, 2 * quarter}, true), 1), x), {-2, 1, -3, -4, 5});
  check_near(turned(Turn(rope_of({quarter}, false), 2), x), {-1, -2, 3, 4, 5});
  check_near(turned(Turn(rope_of({quarter, 2 * quarter}, false), 0), x), x);
}

TEST_CASE("a turn back takes a turn back, and turns add up") {
  const Rope rope = rope_of({1.0, 0.3, 0.01}, true);
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7};
  Turn turn(rope);
  turn.set(1000);
  const std::vector<double> there = turned(turn, x);
  turn.set(-1000);
  check_near(turned(turn, there), x);
  check_near(turned(Turn(rope, 5), turned(Turn(rope, 7), x)), turned(Turn(rope, 12), x));
}

TEST_CASE("the mean of turns is the mean of what they give, and shortens each pair") {
  const Rope rope = rope_of({1.0, 0.3, 0.0}, false);
  const std::vector<double> x{1, 2, 3, 4, 5, 6};
  std::vector<double> mean(6, 0.0);
  for (Index t = 4; t < 9; ++t) {
    const std::vector<double> one = turned(Turn(rope, static_cast<double>(t)), x);
    for (std::size_t k = 0; k < 6; ++k) mean[k] += one[k] / 5;
  }
  const std::vector<double> out = turned(Turn::mean(rope, 4, 9), x);
  check_near(out, mean);
  CHECK(std::hypot(out[0], out[3]) < std::hypot(1, 4));
  CHECK(std::hypot(out[1], out[4]) < std::hypot(2, 5));
  CHECK(out[2] == 3);  // frequency 0 does not turn
  CHECK(out[5] == 6);
}

}  // namespace rotation_test
}  // namespace kvbench
