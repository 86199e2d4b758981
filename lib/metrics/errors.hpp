// Error metrics of one cell: how far an approximation Z is from exact attention A.
// Rows are scored rows x query heads; definitions are those that `kvbench list metrics` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

struct Distribution {
  double mean = 0.0;
  double median = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

// Linear interpolation between order statistics (numpy's default). `values` must not be empty.
Distribution distribution(std::vector<double> values);

struct CellErrors {
  std::optional<double> relative_frobenius_error;   // ||Z - A||_F / ||A||_F, stacked [G * rows, dv]
  std::optional<double> relative_spectral_error;    // ||Z - A||_op / ||A||_op
  std::optional<double> relative_max_error;         // max |Z - A| / max |A|
  std::optional<Distribution> relative_l2;          // ||z - a|| / ||a||
  std::optional<double> relative_l2_posclamp_mean;  // ||z - a|| / ||max(a, 1e-8)||
  std::optional<Distribution> epsilon_spectral;     // ||z - a|| / (||p||_2 ||V_i||_op)
  std::optional<double> epsilon_spectral_last;      // row n - 1, query head 0
  std::optional<Distribution> epsilon_frobenius;    // ||z - a|| / (||p||_2 ||V_i||_F)
  std::optional<double> epsilon_frobenius_last;
  std::optional<Distribution> numerator_error;   // ||N^ - N|| / (||e^x||_2 ||V_i||_op)
  std::optional<Distribution> normalizer_error;  // |tau - Z| / Z
  std::optional<Distribution> cosine_distance;   // 1 - <z, a> / (||z|| ||a||)
  std::optional<Distribution> kl_divergence;     // KL(p^ || p)
};

struct CellMass {
  std::optional<Distribution> kept;         // sum of p_j over distinct tokens whose value is held
  std::optional<Distribution> numerator;    // sum w_num e^x / Z
  std::optional<Distribution> denominator;  // sum w_den e^x / Z
};

// Per-row values, [G][R] row-major, NaN if undefined.
struct RowErrors {
  std::vector<Index> rows;
  std::vector<double> relative_l2;
  std::vector<double> epsilon_spectral;
  std::vector<double> epsilon_frobenius;
  std::vector<double> numerator_error;
  std::vector<double> normalizer_error;
  std::vector<double> kept_mass;
};

// Name, definition and source of each metric, for `kvbench list metrics`.
struct MetricDescription {
  std::string path;  // e.g. "errors.relative_l2.mean"
  std::string definition;
  std::string source;
};
const std::vector<MetricDescription>& all_metrics();

}  // namespace kvbench
