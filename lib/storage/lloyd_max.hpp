// Scalar quantisers of least mean squared error for numbers of a known density (Lloyd; Max,
// Quantizing for minimum distortion, 1960): each point is the mean of what is nearest to it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// An even density on [-high, high], up to a factor: log-concave, so that there is one best
// quantiser. Towards the ends it may fall as steeply as a square root.
struct EvenDensity {
  double high;
  std::function<double(double)> at;
};

// The 2^bits points, ascending and symmetric, to about 1e-15 high.
std::vector<double> lloyd_max_points(const EvenDensity& density, int bits);

// Density of N(0, 1).
EvenDensity normal_density();
// Density of sqrt(d) times a coordinate of a uniform unit vector in d >= 3 dimensions: at sqrt(d) t
// it is (1 - t^2)^((d - 3) / 2), close to that of N(0, 1).
EvenDensity sphere_density(Index d);

// Points and the code of a number: how many of the middles between neighbours are not above it, so
// that a number in the middle goes to the upper point.
class Codebook {
 public:
  Codebook() = default;
  explicit Codebook(std::vector<double> points);

  const std::vector<double>& points() const { return points_; }
  std::uint32_t code_of(double x) const;
  // Codes of `count` numbers; at most 256 points.
  void codes_of(const double* x, Index count, std::uint8_t* codes) const;
  double point(std::uint32_t code) const { return points_[code]; }

 private:
  std::vector<double> points_;
  std::vector<double> middles_;
};

}  // namespace kvbench
