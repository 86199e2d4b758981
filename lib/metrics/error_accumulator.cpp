#include "metrics/error_accumulator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.hpp"

namespace kvbench {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// 0 / 0 is 0: nothing was there and nothing was answered; x / 0 is left out.
double ratio(double numerator, double denominator) {
  if (denominator != 0.0) return numerator / denominator;
  return numerator == 0.0 ? 0.0 : kUndefined;
}

std::optional<double> defined(double value) {
  return std::isnan(value) ? std::nullopt : std::optional<double>(value);
}

// Also of vectors so short that their squares vanish.
double norm(const double* x, Index n) {
  double sum = 0.0;
  for (Index k = 0; k < n; ++k) sum += x[k] * x[k];
  if (sum > 1e-280) return std::sqrt(sum);
  double largest = 0.0;
  for (Index k = 0; k < n; ++k) largest = std::max(largest, std::abs(x[k]));
  if (largest == 0.0) return 0.0;
  sum = 0.0;
  for (Index k = 0; k < n; ++k) sum += (x[k] / largest) * (x[k] / largest);
  return largest * std::sqrt(sum);
}

// 0 if both vectors are zero, 1 if exactly one is. Evaluated as half the squared distance of
// the unit vectors, which keeps its digits if they nearly agree.
double cosine_distance(const double* z, const double* a, double z_norm, double a_norm, Index n) {
  if (z_norm == 0.0 || a_norm == 0.0) return z_norm == a_norm ? 0.0 : 1.0;
  double sum = 0.0;
  for (Index k = 0; k < n; ++k) {
    const double difference = z[k] / z_norm - a[k] / a_norm;
    sum += difference * difference;
  }
  return 0.5 * sum;
}

}  // namespace

ErrorAccumulator::ErrorAccumulator(const Stream& stream, const Reference& reference)
    : stream_(stream), reference_(reference), meaningful_(kColumns, 1) {
  const std::size_t places = reference.exact.max_logit.size();
  for (auto& column : columns_) column.assign(places, kUndefined);
  difference_.assign(places * static_cast<std::size_t>(stream.shape.dv), 0.0);
}

void ErrorAccumulator::add(Index r, int g, const Approximation& approximation) {
  const Index dv = stream_.shape.dv;
  const auto place = static_cast<std::size_t>(r * stream_.shape.group + g);
  const ExactRows& exact = reference_.exact;
  const double* a = exact.outputs.data() + static_cast<Index>(place) * dv;
  const double z_sum = exact.normalizer[place];
  const double e_norm = std::sqrt(exact.squared_sum[place]);
  const double p_norm = e_norm / z_sum;

  double* difference = difference_.data() + static_cast<Index>(place) * dv;
  double clamped = 0.0;
  double numerator_difference = 0.0;
  for (Index k = 0; k < dv; ++k) {
    difference[k] = approximation.answer[k] - a[k];
    const double positive = std::max(a[k], 1e-8);
    clamped += positive * positive;
    const double n = approximation.numerator[k] - a[k] * z_sum;
    numerator_difference += n * n;
  }
  const double error = norm(difference, dv);
  const double a_norm = norm(a, dv);
  const double answer_norm = norm(approximation.answer, dv);
  // NaN marks a metric that is undefined, so nothing else may become one.
  if (!std::isfinite(error + numerator_difference + answer_norm + approximation.normalizer +
                     approximation.numerator_mass + approximation.denominator_mass +
                     approximation.kept_mass.value_or(0.0) +
                     approximation.kl_divergence.value_or(0.0))) {
    throw CellError("the answer or a metric is not finite at row " +
                    std::to_string(exact.rows[static_cast<std::size_t>(r)]) + ", query head " +
                    std::to_string(g) + " of the group");
  }
  const double spectral = reference_.value_spectral[static_cast<std::size_t>(r)];
  const double frobenius = reference_.value_frobenius[static_cast<std::size_t>(r)];

  at(kRelativeL2, place) = ratio(error, a_norm);
  at(kPosclamp, place) = ratio(error, std::sqrt(clamped));
  at(kEpsilonSpectral, place) = ratio(error, p_norm * spectral);
  at(kEpsilonFrobenius, place) = ratio(error, p_norm * frobenius);
  at(kNumerator, place) = ratio(std::sqrt(numerator_difference), e_norm * spectral);
  at(kNormalizer, place) = std::abs(approximation.normalizer - z_sum) / z_sum;
  at(kCosine, place) = cosine_distance(approximation.answer, a, answer_norm, a_norm, dv);
  at(kNumeratorMass, place) = approximation.numerator_mass;
  at(kDenominatorMass, place) = approximation.denominator_mass;
  if (approximation.kl_divergence) at(kKl, place) = *approximation.kl_divergence;
  if (!approximation.has_kl) meaningful_[kKl] = 0;
  if (approximation.kept_mass) {
    at(kKeptMass, place) = *approximation.kept_mass;
  } else {
    meaningful_[kKeptMass] = 0;
  }
}

std::optional<Distribution> ErrorAccumulator::of(Column column) const {
  if (meaningful_[column] == 0) return std::nullopt;
  std::vector<double> values;
  values.reserve(columns_[column].size());
  for (const double value : columns_[column]) {
    if (!std::isnan(value)) values.push_back(value);
  }
  if (values.empty()) return std::nullopt;
  return distribution(std::move(values));
}

std::optional<double> ErrorAccumulator::last(Column column) const {
  const std::vector<Index>& rows = reference_.exact.rows;
  if (rows.empty() || rows.back() != stream_.shape.tokens - 1) return std::nullopt;
  return defined(
      columns_[column][(rows.size() - 1) * static_cast<std::size_t>(stream_.shape.group)]);
}

CellErrors ErrorAccumulator::errors() const {
  CellErrors out;
  double squares = 0.0;
  double largest = 0.0;
  for (const double x : difference_) {
    squares += x * x;
    largest = std::max(largest, std::abs(x));
  }
  const double spectral =
      spectral_norm({difference_.data(), static_cast<Index>(columns_[0].size()), stream_.shape.dv});
  out.relative_frobenius_error = defined(ratio(std::sqrt(squares), reference_.output_frobenius));
  out.relative_spectral_error = defined(ratio(spectral, reference_.output_spectral));
  out.relative_max_error = defined(ratio(largest, reference_.output_max));
  out.relative_l2 = of(kRelativeL2);
  if (const auto posclamp = of(kPosclamp)) out.relative_l2_posclamp_mean = posclamp->mean;
  out.epsilon_spectral = of(kEpsilonSpectral);
  out.epsilon_spectral_last = last(kEpsilonSpectral);
  out.epsilon_frobenius = of(kEpsilonFrobenius);
  out.epsilon_frobenius_last = last(kEpsilonFrobenius);
  out.numerator_error = of(kNumerator);
  out.normalizer_error = of(kNormalizer);
  out.cosine_distance = of(kCosine);
  out.kl_divergence = of(kKl);
  return out;
}

CellMass ErrorAccumulator::mass() const {
  return {of(kKeptMass), of(kNumeratorMass), of(kDenominatorMass)};
}

RowErrors ErrorAccumulator::row_errors() const {
  RowErrors out;
  out.rows = reference_.exact.rows;
  const std::size_t group = static_cast<std::size_t>(stream_.shape.group);
  const std::size_t rows = out.rows.size();
  const auto by_head = [&](Column column) {
    std::vector<double> values(rows * group);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t g = 0; g < group; ++g) {
        values[g * rows + r] = columns_[column][r * group + g];
      }
    }
    return values;
  };
  out.relative_l2 = by_head(kRelativeL2);
  out.epsilon_spectral = by_head(kEpsilonSpectral);
  out.epsilon_frobenius = by_head(kEpsilonFrobenius);
  out.numerator_error = by_head(kNumerator);
  out.normalizer_error = by_head(kNormalizer);
  out.kept_mass = by_head(kKeptMass);
  return out;
}

Index ErrorAccumulator::undefined_rows() const {
  Index count = 0;
  for (std::size_t place = 0; place < columns_[0].size(); ++place) {
    bool left_out = false;
    for (std::size_t column = 0; column < kColumns; ++column) {
      left_out |= meaningful_[column] != 0 && std::isnan(columns_[column][place]);
    }
    count += left_out ? 1 : 0;
  }
  return count;
}

}  // namespace kvbench
