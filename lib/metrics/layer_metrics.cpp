#include "metrics/layer_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "metrics/distribution.hpp"
#include "numerics/norm.hpp"

namespace kvbench {
namespace {

using Row = const ScoredLayerRow&;

double sum_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Whether the heads' errors are those of double precision: they have no proportions to measure.
bool is_rounding(Row row) {
  constexpr double kRounding = 1e-13;  // relative to the layer's output
  return std::isfinite(row.exact_l2) && sum_of(row.head_errors) <= kRounding * row.exact_l2;
}

std::vector<LayerMetric> layer_metric_rows() {
  return {
      {.path = "errors.relative_output_l2",
       .definition = "||sum_h W_h e_h|| / ||sum_h W_h a_h|| per row",
       .of_row = [](Row row) { return ratio(row.error_l2, row.exact_l2); }},
      {.path = "errors.relative_output_l1",
       .definition = "||sum_h W_h e_h||_1 / ||sum_h W_h a_h||_1 per row",
       .of_row = [](Row row) { return ratio(row.error_l1, row.exact_l1); }},
      {.path = "errors.residual_ratio",
       .definition = "||sum_h W_h e_h|| / ||x||, x the residual stream that the layer adds to",
       .of_row = [](Row row) -> MetricValue {
         if (!row.residual) return std::nullopt;
         return ratio(row.error_l2, *row.residual);
       },
       .needs_residual = true},
      {.path = "errors.cancellation",
       .definition =
           "||sum_h W_h e_h|| / sum_h ||W_h e_h||: 1 if no head's error cancels another's",
       .of_row = [](Row row) -> MetricValue {
         return is_rounding(row) ? 0.0 : ratio(row.error_l2, sum_of(row.head_errors));
       },
       .less_is_better = false},
      {.path = "errors.half_heads",
       .definition = "smallest fraction of query heads that carry half of sum_h ||W_h e_h||^2",
       .of_row = [](Row row) -> MetricValue {
         return is_rounding(row) ? 0.0 : half_heads(row.head_errors);
       },
       .less_is_better = false},
  };
}

}  // namespace

const std::vector<LayerMetric>& layer_metrics() {
  static const std::vector<LayerMetric> metrics = layer_metric_rows();
  return metrics;
}

const std::vector<LayerNumber>& layer_numbers() {
  static const std::vector<LayerNumber> numbers = [] {
    std::vector<LayerNumber> all;
    for (const LayerMetric& metric : layer_metrics()) {
      for (const DistributionNumber& each : kDistributionNumbers) {
        all.push_back({metric.path + "." + each.name, each.name, &metric});
      }
    }
    return all;
  }();
  return numbers;
}

double half_heads(std::span<const double> head_errors) {
  std::vector<double> squares;
  squares.reserve(head_errors.size());
  double largest = 0.0;
  for (const double error : head_errors) largest = std::max(largest, error);
  for (const double error : head_errors) {
    const double share =
        largest > 0.0 && !NormSum::is_safe(largest * largest) ? error / largest : error;
    squares.push_back(share * share);
  }
  std::sort(squares.begin(), squares.end(), std::greater<>());
  const double half = 0.5 * (1.0 - 1e-12) * sum_of(squares);
  double sum = 0.0;
  std::size_t heads = 0;
  while (heads < squares.size() && sum < half) sum += squares[heads++];
  return heads / static_cast<double>(head_errors.size());
}

LayerErrors layer_errors(const std::vector<ScoredLayerRow>& scored) {
  const bool any_residual =
      std::any_of(scored.begin(), scored.end(), [](Row row) { return row.residual.has_value(); });
  LayerErrors out;
  std::vector<bool> left_out(scored.size(), false);
  for (const LayerMetric& metric : layer_metrics()) {
    std::vector<double> values;
    Index overflowed = 0;
    for (std::size_t r = 0; r < scored.size(); ++r) {
      const MetricValue value = metric.of_row(scored[r]);
      if (value && !std::isfinite(*value)) ++overflowed;
      if (value) values.push_back(*value);
      if (!value && (any_residual || !metric.needs_residual)) left_out[r] = true;
    }
    if (overflowed > 0) out.overflows.push_back({metric.path, overflowed});
    const auto summary = values.empty() || overflowed > 0
                             ? std::nullopt
                             : std::optional<Distribution>(distribution(std::move(values)));
    for (const DistributionNumber& each : kDistributionNumbers) {
      out.numbers.push_back(summary ? MetricValue((*summary).*each.number) : std::nullopt);
    }
  }
  out.undefined_rows = std::count(left_out.begin(), left_out.end(), true);
  return out;
}

}  // namespace kvbench
