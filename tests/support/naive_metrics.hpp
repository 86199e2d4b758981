// Metrics of a cell by their definitions; spectral norms by a dense SVD.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/stream.hpp"
#include "metrics/metric_table.hpp"
#include "sketch/sketch.hpp"

namespace kvbench::test {

struct NaiveReport {
  // By their paths in a cell, "errors.relative_l2.mean"; none where undefined. Metrics of the table
  // that are not defined here have tests of their own.
  std::map<std::string, std::optional<double>> numbers;
  Index undefined_rows = 0;  // left out of at least one of these
};

// `sketches[r]` is what is kept when `rows[r]` is answered.
NaiveReport naive_report(const Stream& stream, const std::vector<Index>& rows,
                         const std::vector<Sketch>& sketches);

// The errors of z = 0 and of z = mean of the visible values, and kappa = ||p||_2 ||V_i||_op /
// ||a||.
struct NaiveTrivial {
  NaiveReport zero;
  NaiveReport mean_value;
  std::vector<double> kappa;         // where it is defined
  std::optional<double> kappa_last;  // the largest over query heads of row n - 1
};
NaiveTrivial naive_trivial(const Stream& stream, const std::vector<Index>& rows);

// ||M||_op and ||M||_F of rows [first, last) of a matrix.
double naive_spectral_norm(ConstMatrix matrix, Index first, Index last);
double naive_frobenius_norm(ConstMatrix matrix, Index first, Index last);

// Quantile of unsorted values with linear interpolation, q in [0, 1].
double naive_quantile(std::vector<double> values, double q);

// The numbers of two cells in pairs, with their paths; absent ones as NaN.
struct NamedPair {
  std::string path;
  double a;
  double b;
};
std::vector<NamedPair> paired_metrics(const CellMetrics& a, const CellMetrics& b);
// Those that the report has.
std::vector<NamedPair> paired_metrics(const CellMetrics& cell, const NaiveReport& naive);

// Whether a cell that counts `undefined_rows` does so rightly: with a metric that the report does
// not know it may count more.
bool undefined_rows_agree(Index undefined_rows, const NaiveReport& naive);

}  // namespace kvbench::test
