// Gathers the metrics of one cell, row by row, by the table of metrics.
#pragma once

#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "metrics/metric_table.hpp"
#include "metrics/reference.hpp"

namespace kvbench {

class ErrorAccumulator {
 public:
  // Both must live as long.
  ErrorAccumulator(const Stream& stream, const Reference& reference);

  // `r`: index into reference.exact.rows, `g`: query head of the group; each pair once. Throws
  // CellError if the answer or a metric is not finite, with its name, row and query head.
  void add(Index r, int g, const Answer& answer);

  CellMetrics metrics(const StoredErrors& stored = {}) const;
  RowValues row_values() const;
  // Z - A [R * G, dv], which is given away: called last, once.
  std::vector<double> take_difference() { return std::move(difference_); }
  // Rows x query heads that were left out of at least one metric.
  Index undefined_rows() const;

 private:
  // The values of a metric that has one per row.
  struct Column {
    const Metric* metric;
    std::vector<double> values;  // [R * G], NaN: undefined
    bool has_meaning = true;
  };

  ScoredAnswer scored(Index r, int g, const Answer& answer);
  [[noreturn]] void fail(const std::string& what, Index r, int g) const;
  // Appends the numbers of `column` as metric_numbers() lists them.
  void summarise(const Column& column, std::vector<MetricValue>& numbers) const;

  const Stream& stream_;
  const Reference& reference_;
  std::vector<Column> columns_;     // in the order of the table
  std::vector<double> difference_;  // Z - A, [R * G, dv]
};

}  // namespace kvbench
