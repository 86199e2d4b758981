// Gathers the errors of one cell, row by row, and turns them into its metrics.
#pragma once

#include <optional>
#include <vector>

#include "core/stream.hpp"
#include "metrics/errors.hpp"
#include "metrics/reference.hpp"

namespace kvbench {

// An approximation at one row and query head. Sums are scaled like the reference's, by
// exp(-max_logit of the reference).
struct Approximation {
  const double* answer = nullptr;     // [dv]
  const double* numerator = nullptr;  // [dv]
  double normalizer = 0.0;
  std::optional<double> kept_mass;
  double numerator_mass = 0.0;
  double denominator_mass = 0.0;
  std::optional<double> kl_divergence;
  bool has_kl = true;  // false: the metric has no meaning for this sketch; no row is undefined
};

class ErrorAccumulator {
 public:
  ErrorAccumulator(const Stream& stream, const Reference& reference);

  // `r`: index into reference.exact.rows, `g`: query head of the group; each pair once.
  void add(Index r, int g, const Approximation& approximation);

  CellErrors errors() const;
  CellMass mass() const;
  RowErrors row_errors() const;
  // Rows x query heads that were left out of at least one metric.
  Index undefined_rows() const;

 private:
  enum Column {
    kRelativeL2,
    kPosclamp,
    kEpsilonSpectral,
    kEpsilonFrobenius,
    kNumerator,
    kNormalizer,
    kCosine,
    kKl,
    kKeptMass,
    kNumeratorMass,
    kDenominatorMass,
    kColumns
  };

  double& at(Column column, std::size_t place) { return columns_[column][place]; }
  std::optional<Distribution> of(Column column) const;
  std::optional<double> last(Column column) const;

  const Stream& stream_;
  const Reference& reference_;
  std::vector<double> columns_[kColumns];  // [R * G], NaN: left out
  std::vector<char> meaningful_;           // per column
  std::vector<double> difference_;         // Z - A, [R * G, dv]
};

}  // namespace kvbench
