#include "results/mean_interval.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

namespace kvbench {
namespace {

// P[|t| <= tan(theta) sqrt(freedom)]: the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4.
double central_probability(double theta, Index freedom) {
  const double cosine = std::cos(theta);
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1.0;
  double sum = freedom == 1 ? 0.0 : term;
  for (Index k = odd ? 3 : 2; k < freedom; k += 2) {
    term *= cosine * cosine * (k - 1) / k;
    sum += term;
  }
  sum *= std::sin(theta);
  return odd ? 2.0 / std::numbers::pi * (theta + sum) : sum;
}

double bisected_quantile(Index freedom) {
  double low = 0.0;
  double high = std::numbers::pi / 2.0;
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (central_probability(middle, freedom) < 0.95 ? low : high) = middle;
  }
  return std::tan(0.5 * (low + high)) * std::sqrt(static_cast<double>(freedom));
}

// Fisher and Cornish's expansion, Abramowitz and Stegun 26.7.5.
double expanded_quantile(Index freedom) {
  const double z = 1.959963984540054;
  const double v = freedom;
  const double s = z * z;
  const double g1 = (s + 1.0) / 4.0;
  const double g2 = ((5.0 * s + 16.0) * s + 3.0) / 96.0;
  const double g3 = (((3.0 * s + 19.0) * s + 17.0) * s - 15.0) / 384.0;
  const double g4 = ((((79.0 * s + 776.0) * s + 1482.0) * s - 1920.0) * s - 945.0) / 92160.0;
  return z * (1.0 + (g1 + (g2 + (g3 + g4 / v) / v) / v) / v);
}

// The mean, and half the width of Student's t interval around it.
struct MeanAndHalf {
  double mean;
  double half;
};

std::optional<MeanAndHalf> mean_and_half(const std::vector<double>& values,
                                         const IndependentGroups& groups) {
  std::vector<double> sum(groups.count, 0.0);
  std::vector<double> count(sum.size(), 0.0);
  double total = 0.0;
  double units = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    const std::size_t group = groups.group_of[i];
    sum[group] += values[i];
    ++count[group];
    total += values[i];
    ++units;
  }
  const double mean = total / units;
  std::vector<double> deviations;  // (n_g / n) (m_g - m)
  double largest = 0.0;
  for (std::size_t g = 0; g < sum.size(); ++g) {
    if (count[g] == 0.0) continue;
    deviations.push_back((sum[g] - count[g] * mean) / units);
    largest = std::max(largest, std::abs(deviations.back()));
  }
  const Index present = std::ssize(deviations);
  if (present < 2) return std::nullopt;
  // Squares of errors of e^x may overflow; a power of two changes no other bit.
  const int exponent = std::isnormal(largest) ? std::ilogb(largest) : 0;
  double squares = 0.0;
  for (const double deviation : deviations) {
    const double scaled = std::scalbn(deviation, -exponent);
    squares += scaled * scaled;
  }
  const double freedom = present - 1;
  const double root = std::sqrt(squares * present / freedom);
  return MeanAndHalf{mean, std::scalbn(student_t_975(present - 1) * root, exponent)};
}

}  // namespace

double student_t_975(Index freedom) {
  constexpr Index kBisected = 200;
  static const auto table = [] {
    std::array<double, kBisected + 1> quantiles{};
    for (Index v = 1; v <= kBisected; ++v) {
      quantiles[v] = bisected_quantile(v);
    }
    return quantiles;
  }();
  return freedom <= kBisected ? table[freedom] : expanded_quantile(freedom);
}

const char* level_name(UnitLevel level) {
  switch (level) {
    case UnitLevel::kText:
      return "sequence";
    case UnitLevel::kLayer:
      return "layer";
    case UnitLevel::kHead:
      break;
  }
  return "kv_head";
}

IndependentGroups independent_groups(const std::vector<UnitNesting>& units) {
  IndependentGroups out;
  out.group_of.reserve(units.size());
  for (const UnitLevel level : {UnitLevel::kText, UnitLevel::kLayer}) {
    std::map<Index, Index> number;
    out.group_of.clear();
    for (const UnitNesting& unit : units) {
      const Index key = level == UnitLevel::kText ? unit.text : unit.layer;
      out.group_of.push_back(number.try_emplace(key, std::ssize(number)).first->second);
    }
    out.level = level;
    out.count = std::ssize(number);
    if (out.count > 1) return out;
  }
  out.level = UnitLevel::kHead;
  out.count = std::ssize(units);
  for (Index unit = 0; unit < out.count; ++unit) {
    out.group_of[unit] = unit;
  }
  return out;
}

std::optional<Interval> mean_interval(const std::vector<double>& values,
                                      const IndependentGroups& groups) {
  const std::optional<MeanAndHalf> found = mean_and_half(values, groups);
  if (!found) return std::nullopt;
  return Interval{found->mean - found->half, found->mean + found->half};
}

std::optional<Interval> positive_mean_interval(const std::vector<double>& values,
                                               const IndependentGroups& groups) {
  const bool any_below =
      std::any_of(values.begin(), values.end(), [](double v) { return v < 0.0; });
  if (any_below) return mean_interval(values, groups);
  const std::optional<MeanAndHalf> found = mean_and_half(values, groups);
  if (!found) return std::nullopt;
  if (found->mean == 0.0) return Interval{0.0, 0.0};
  const double factor = std::exp(found->half / found->mean);
  return Interval{found->mean / factor, found->mean * factor};
}

}  // namespace kvbench
