#include "storage/lloyd_max.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"

namespace kvbench {
namespace {

// Gauss-Legendre's nodes and weights on [-1, 1], eight of them: exact for polynomials up to x^15.
constexpr double kNodes[] = {0.18343464249564980, 0.52553240991632899, 0.79666647741362674,
                             0.96028985649753623};
constexpr double kWeights[] = {0.36268378337836198, 0.31370664587788729, 0.22238103445337447,
                               0.10122853629037626};
constexpr int kParts = 8;        // parts of a cell
constexpr int kHalvings = 45;    // halvings of the distance to the end, in the last cell
constexpr int kLloydSteps = 60;  // into the reach of Newton's method
constexpr int kNewtonSteps = 10;
constexpr double kEnd = 12.0;  // N(0, 1) has 4e-33 beyond, coordinates of the sphere less

struct Moments {
  double mass = 0.0;
  double first = 0.0;
};

void add_panel(const EvenDensity& density, double low, double high, Moments& sums) {
  const double middle = 0.5 * (low + high);
  const double half = 0.5 * (high - low);
  for (int node = 0; node < 4; ++node) {
    for (const double side : {-1.0, 1.0}) {
      const double x = fused(side * half, kNodes[node], middle);
      const double share = half * kWeights[node] * density.at(x);
      sums.mass += share;
      sums.first = fused(share, x, sums.first);
    }
  }
}

void add_parts(const EvenDensity& density, double low, double high, int parts, Moments& sums) {
  const double step = (high - low) / parts;
  for (int i = 0; i < parts; ++i) add_panel(density, low + i * step, low + (i + 1) * step, sums);
}

// Moments of [low, high]; where that ends with the density, panels become finer towards the end.
Moments moments(const EvenDensity& density, double low, double high) {
  Moments out;
  if (high < density.high) {
    add_parts(density, low, high, kParts, out);
    return out;
  }
  double from = low;
  for (int halving = 1; halving <= kHalvings; ++halving) {
    const double to = high - std::ldexp(high - low, -halving);
    add_parts(density, from, to, halving == 1 ? 2 * kParts : 2, out);
    from = to;
  }
  add_panel(density, from, high, out);
  return out;
}

// Borders of the points above 0: 0, middles, the end.
std::vector<double> borders(const std::vector<double>& points, double end) {
  std::vector<double> out = {0.0};
  for (std::size_t i = 1; i < points.size(); ++i) out.push_back(0.5 * (points[i - 1] + points[i]));
  out.push_back(end);
  return out;
}

void lloyd_step(const EvenDensity& density, std::vector<double>& points) {
  const std::vector<double> at = borders(points, density.high);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Moments cell = moments(density, at[i], at[i + 1]);
    points[i] = cell.first / cell.mass;
  }
}

// Newton step for F_i = first moment - point mass of cell i, whose derivatives are a tridiagonal
// matrix.
void newton_step(const EvenDensity& density, std::vector<double>& points) {
  const std::size_t n = points.size();
  const std::vector<double> at = borders(points, density.high);
  std::vector<double> above(n, 0.0);  // factors of the elimination: x_i = right_i - above_i x_{i+1}
  std::vector<double> right(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    const Moments cell = moments(density, at[i], at[i + 1]);
    const double lower = i == 0 ? 0.0 : 0.5 * (points[i] - at[i]) * density.at(at[i]);
    const double upper = i + 1 == n ? 0.0 : 0.5 * (at[i + 1] - points[i]) * density.at(at[i + 1]);
    double pivot = lower + upper - cell.mass;
    double residual = points[i] * cell.mass - cell.first;
    if (i > 0) {
      pivot -= lower * above[i - 1];
      residual -= lower * right[i - 1];
    }
    above[i] = upper / pivot;
    right[i] = residual / pivot;
  }
  double step = 0.0;
  for (std::size_t i = n; i-- > 0;) {
    step = right[i] - above[i] * step;
    points[i] += step;
  }
}

}  // namespace

std::vector<double> lloyd_max_points(const EvenDensity& density, int bits) {
  const int half = 1 << (bits - 1);
  // Points above 0.
  std::vector<double> points;
  const double reach = std::min(density.high, 3.0);
  for (int i = 0; i < half; ++i) points.push_back(reach * (i + 0.5) / half);
  for (int step = 0; step < kLloydSteps; ++step) lloyd_step(density, points);
  for (int step = 0; step < kNewtonSteps; ++step) newton_step(density, points);
  std::vector<double> out;
  for (std::size_t i = points.size(); i-- > 0;) out.push_back(-points[i]);
  out.insert(out.end(), points.begin(), points.end());
  return out;
}

EvenDensity normal_density() {
  return {kEnd, [](double x) { return canonical_exp(-0.5 * x * x); }};
}

EvenDensity sphere_density(Index d) {
  const double root = std::sqrt(static_cast<double>(d));
  const double power = 0.5 * (d - 3);
  return {std::min(root, kEnd), [root, power](double x) {
            const double t = x / root;
            const double w = (1.0 - t) * (1.0 + t);
            return w > 0.0 ? canonical_exp(power * canonical_log(w)) : 0.0;
          }};
}

Codebook::Codebook(std::vector<double> points) : points_(std::move(points)) {
  for (std::size_t i = 1; i < points_.size(); ++i) {
    middles_.push_back(0.5 * (points_[i - 1] + points_[i]));
  }
}

std::uint32_t Codebook::code_of(double x) const {
  std::uint32_t code = 0;
  for (const double middle : middles_) code += x >= middle ? 1 : 0;
  return code;
}

void Codebook::codes_of(const double* x, Index count, std::uint8_t* codes) const {
  Index i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) {
    const Lanes some = Lanes::load(x + i);
    Lanes above = Lanes::all(0.0);
    for (const double middle : middles_) {
      above = above + Lanes::zero_below(some, middle, Lanes::all(1.0));
    }
    double found[Lanes::kCount];
    above.store(found);
    for (int k = 0; k < Lanes::kCount; ++k) codes[i + k] = static_cast<std::uint8_t>(found[k]);
  }
  for (; i < count; ++i) codes[i] = static_cast<std::uint8_t>(code_of(x[i]));
}

}  // namespace kvbench
