// Answers that no method is needed for, scored like a method's: what an error has to beat.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/stream.hpp"
#include "metrics/distribution.hpp"
#include "metrics/metric_table.hpp"
#include "metrics/reference.hpp"

namespace kvbench {

// They depend on stream and scored rows alone, so that the cells of a stream share them.
struct TrivialAnswers {
  CellMetrics zero;        // of z = 0
  CellMetrics mean_value;  // of z = mean of the values visible at the row
  // kappa = ||p||_2 ||V_i||_op / ||a||, by which epsilon_spectral becomes relative_l2; 1 / kappa is
  // epsilon_spectral of z = 0. Over rows and query heads where it is defined.
  std::optional<Distribution> kappa;
  MetricValue kappa_last;  // at row n - 1 and query head 0

  // The smaller of both answers' values; none where neither has one. `path` as in metric_numbers().
  MetricValue best(const std::string& path) const;
};

// Indices into metric_numbers() of the errors that an answer has by itself: not of those that speak
// of a sketch's sums or rows.
const std::vector<std::size_t>& answer_numbers();

// Nothing where a metric of these answers is not finite. Costs about two cells' metrics.
std::optional<TrivialAnswers> trivial_answers(const Stream& stream, const Reference& reference);

}  // namespace kvbench
