// Answers that no method is needed for, scored like a method's: what an error has to beat.
#pragma once

#include <map>
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
  CellMetrics zero;        // metrics of z = 0
  CellMetrics mean_value;  // metrics of z = mean of the values visible at the row
  // kappa = ||p||_2 ||V_i||_op / ||a||, by which epsilon_spectral becomes relative_l2; 1 / kappa is
  // epsilon_spectral of z = 0. Over rows and query heads where it is defined.
  std::optional<Distribution> kappa;
  MetricValue kappa_last;  // the largest over query heads at row n - 1

  // The smallest value over query heads and both answers at row n - 1, by the metric's path; none
  // where no value is defined. Only metrics that have `last` are in it.
  std::map<std::string, double> least_last;
};

// Indices into metric_numbers() of the errors that an answer has by itself: not of those that speak
// of a sketch's sums or rows.
const std::vector<std::size_t>& answer_numbers();

// Throws CellError where an answer is not finite. Costs about two cells' metrics.
TrivialAnswers trivial_answers(const Stream& stream, const Reference& reference);

}  // namespace kvbench
