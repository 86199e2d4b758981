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
  enum class Metrics {
    kAll,
    kOfAnswer,  // errors that an answer has by itself; the others are null
  };
  // Stream and reference must live as long.
  ErrorAccumulator(const Stream& stream, const Reference& reference,
                   Metrics metrics = Metrics::kAll);

  // `r`: index into reference.exact.rows, `g`: query head of the group; each pair once. Throws
  // CellError if the answer is not finite, with row and query head.
  void add(Index r, int g, const Answer& answer);

  // `overflows`, unless null, gets the metrics that overflowed, in the order of the table.
  CellMetrics metrics(const StoredErrors& stored = {},
                      std::vector<Overflow>* overflows = nullptr) const;
  // The values of a metric that has `last` at row n - 1, by query head, NaN where undefined; none
  // if that row is not scored.
  std::vector<double> last_values(const Metric& metric) const;
  RowValues row_values() const;
  // Z - A [R * G, dv], which is given away: called last, once.
  std::vector<double> take_difference() { return std::move(difference_); }
  // Rows x query heads that were left out of at least one metric.
  Index undefined_rows() const;

 private:
  // The values of a metric that has one per row.
  struct Column {
    const Metric* metric;
    std::vector<double> values;  // [R * G], NaN: undefined, infinite: overflowed
    bool has_meaning;
    bool is_computed = has_meaning;

    Index overflows() const;  // rows x query heads
  };

  ScoredAnswer scored(Index r, int g, const Answer& answer);
  // Appends the numbers of `column` as metric_numbers() lists them.
  void summarise(const Column& column, std::vector<MetricValue>& numbers) const;

  const Stream& stream_;
  const Reference& reference_;
  std::vector<Column> columns_;     // in the order of the table
  std::vector<double> difference_;  // Z - A, [R * G, dv]
};

}  // namespace kvbench
