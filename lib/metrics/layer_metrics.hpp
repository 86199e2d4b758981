// Errors of a whole layer: those of its heads, added up behind the output projection W_O.
// One row of one table each, as in metric_table.hpp; they are in the records of `layers`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/metric_table.hpp"

namespace kvbench {

// One scored row of a layer. W_h [dv, hidden] is the part of W_O that query head h is multiplied
// by, a_h its exact output, e_h = z_h - a_h the error of its answer.
struct ScoredLayerRow {
  double error_l2;                      // ||sum_h W_h e_h||
  double error_l1;                      // ||sum_h W_h e_h||_1
  double exact_l2;                      // ||sum_h W_h a_h||
  double exact_l1;                      // ||sum_h W_h a_h||_1
  std::span<const double> head_errors;  // [Hq] ||W_h e_h||
  std::optional<double> residual;       // ||x||; none where it is not known
};

struct LayerMetric {
  std::string path;  // "errors.NAME", and no metric of a cell has that path
  std::string definition;
  MetricValue (*of_row)(const ScoredLayerRow&);
  bool needs_residual = false;  // null for a layer without any residual norm
  bool less_is_better = true;   // false: neither more nor less is

  std::string name() const { return path.substr(path.find('.') + 1); }
};

// In the order of results.json. A record has a distribution of each over the scored rows.
const std::vector<LayerMetric>& layer_metrics();

struct LayerNumber {
  std::string path;  // "errors.relative_output_l2.mean"
  std::string part;  // "mean"
  const LayerMetric* metric;
};
// Numbers of all layer metrics, in their order.
const std::vector<LayerNumber>& layer_numbers();

// The smallest share of heads that carry half of the sum of squares of `head_errors`: k / Hq, k the
// fewest heads whose squares add up to at least (1 - 1e-12) / 2 of all (heads of equal size are not
// distinguished by rounding). 0 if all are 0.
double half_heads(std::span<const double> head_errors);

// The numbers of one record.
struct LayerErrors {
  std::vector<MetricValue> numbers;  // one for each of layer_numbers()
  Index undefined_rows = 0;          // rows left out of at least one metric
  std::vector<Overflow> overflows;   // metrics that are null because of it
};

LayerErrors layer_errors(const std::vector<ScoredLayerRow>& scored);

}  // namespace kvbench
