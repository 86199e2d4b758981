// The metrics: one row of one table each. All else that the program knows of a metric follows from
// its row: its numbers in a cell and in the summary, their schema, `kvbench list metrics`, its
// column of results.rows.h5, and what `compare` and `check` accept.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/reference.hpp"
#include "numerics/matrix_view.hpp"
#include "sketch/estimator.hpp"
#include "sketch/held_vectors.hpp"

namespace kvbench {

// One answer next to the exact one, at one row and query head. Sums are scaled as in Answer, by
// exp(-max_logit of the reference). Quantities that several metrics need are computed once. The
// answer is finite; its sums and norms are infinite where they exceed the largest double.
struct ScoredAnswer {
  const Answer& answer;        // z, N^, tau, ..
  const double* exact_output;  // [dv] a
  Index dv;
  double normalizer;        // Z
  double exponential_norm;  // ||e^x||_2
  double probability_norm;  // ||p||_2
  double value_spectral;    // ||V_i||_op
  double value_frobenius;   // ||V_i||_F
  double error_norm;        // ||z - a||
  double exact_norm;        // ||a||
  double answer_norm;       // ||z||
  double error_l1;          // ||z - a||_1
  double exact_l1;          // ||a||_1
};

// The answers of all scored rows and query heads, [R * G, dv].
struct StackedAnswers {
  ConstMatrix difference;      // Z - A
  const Reference& reference;  // A in exact.outputs, and its norms
  StoredErrors stored;         // at row n - 1
};

// Nothing where the metric is undefined, which results call null; not finite where it exceeds the
// largest double.
using MetricValue = std::optional<double>;

// 0 / 0 is 0: nothing was there and nothing was answered; x / 0 is undefined. Infinite where one of
// the two overflowed: that must pass neither for undefined nor for small.
MetricValue ratio(double numerator, double denominator);

// Form in which a cell keeps a metric's values over rows and query heads.
enum class OverRows {
  kDistribution,         // an object: mean, median, p90, p99, max
  kDistributionAndLast,  // and `last`, the largest over query heads at row n - 1
  kMean,                 // a number
  kRootMeanSquare,       // a number: the root of the mean of squares
  kSum,                  // a number, of counters an integer
};

// A row of the table. Exactly one of `of_row` and `of_all` is given.
struct Metric {
  // Its place in a cell of results.json: "errors.NAME", "mass.NAME" or "counters.NAME".
  std::string path;
  std::string definition;
  std::string source = "";  // source of the definition; empty: none

  // Per row and query head. A row at which it is undefined is left out and counted; where it is not
  // finite at some row, it is null for the cell, and those rows are counted.
  MetricValue (*of_row)(const ScoredAnswer&) = nullptr;
  OverRows over_rows = OverRows::kDistribution;
  // Whether it has a meaning for the sketch that gave this answer; without one at some row, it is
  // null for the whole cell and no row is undefined. Not given: always.
  bool (*has_meaning)(const Answer&) = nullptr;
  // Dataset of results.rows.h5 that has its values per row; empty: none.
  std::string column = "";

  // Function of a metric that does not summarise rows: one number of all answers at once.
  MetricValue (*of_all)(const StackedAnswers&) = nullptr;

  // If only by rounding. A record whose number is below 0 otherwise is damaged.
  bool can_be_negative = false;

  // True for a metric of a sketch's sums or weights: an answer without a sketch has no such number.
  bool of_sketch = false;

  // False: neither more nor less is better, and `compare` refuses it.
  bool less_is_better = true;

  std::string section() const { return path.substr(0, path.find('.')); }
  // Whether an answer has it by itself, without a sketch.
  bool is_of_answer() const { return section() == "errors" && !of_sketch; }
  std::string name() const { return path.substr(path.find('.') + 1); }
};

// All metrics in the order of results.json.
const std::vector<Metric>& all_metrics();

// A number of a cell: one per metric or, of a distribution, one for each of its parts.
struct MetricNumber {
  std::string path;  // "errors.relative_l2.mean"
  std::string part;  // "mean"; empty: the metric is one number
  const Metric* metric;
};
// Numbers of all metrics, in their order.
const std::vector<MetricNumber>& metric_numbers();

// The columns of results.rows.h5, in the order of the table.
const std::vector<std::string>& row_columns();

// The numbers of one cell.
class CellMetrics {
 public:
  // All numbers are unset.
  CellMetrics() : numbers_(metric_numbers().size()) {}
  // One for each of metric_numbers(), in their order; std::logic_error for more or fewer.
  explicit CellMetrics(std::vector<MetricValue> numbers);

  // The number at a path of metric_numbers(); std::logic_error for another path.
  MetricValue& operator[](std::string_view path) { return numbers_[index_of(path)]; }
  const MetricValue& operator[](std::string_view path) const { return numbers_[index_of(path)]; }

  // The number at an index into metric_numbers().
  MetricValue& at(std::size_t index) { return numbers_.at(index); }
  const MetricValue& at(std::size_t index) const { return numbers_.at(index); }

 private:
  static std::size_t index_of(std::string_view path);

  std::vector<MetricValue> numbers_;
};

// A metric whose numbers are null because it exceeds the largest double, and at how many rows x
// query heads it does; of one that does not summarise rows, all of them.
struct Overflow {
  std::string path;  // "errors.numerator_error"
  Index rows = 0;
};

// Values per row: one list for each of row_columns(), [G][R] row-major, NaN where undefined,
// infinite where they overflowed.
struct RowValues {
  std::vector<Index> rows;
  std::vector<std::vector<double>> columns;

  // The values of the column of that name; std::logic_error for another name.
  const std::vector<double>& operator[](std::string_view column) const;
};

}  // namespace kvbench
