#include "metrics/error_accumulator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "metrics/distribution.hpp"
#include "numerics/norm.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kOverflowed = std::numeric_limits<double>::infinity();

}  // namespace

ErrorAccumulator::ErrorAccumulator(const Stream& stream, const Reference& reference,
                                   Metrics metrics)
    : stream_(stream), reference_(reference) {
  const std::size_t query_count = reference.exact.max_logit.size();
  for (const Metric& metric : all_metrics()) {
    if (metric.of_row != nullptr) {
      columns_.push_back({&metric, std::vector<double>(query_count, kUndefined),
                          metrics == Metrics::kAll || metric.is_of_answer()});
    }
  }
  difference_.assign(query_count * stream.shape.dv, 0.0);
}

Index ErrorAccumulator::Column::overflows() const {
  if (!has_meaning) return 0;
  return std::count_if(values.begin(), values.end(),
                       [](double value) { return std::isinf(value); });
}

ScoredAnswer ErrorAccumulator::scored(Index r, int g, const Answer& answer) {
  const Index dv = stream_.shape.dv;
  const std::size_t row = r;
  const std::size_t query_index = r * stream_.shape.heads_per_kv + g;
  const ExactRows& exact = reference_.exact;
  const double* a = exact.outputs.data() + static_cast<Index>(query_index) * dv;
  const double* z = answer.answer.data();
  double* difference = difference_.data() + static_cast<Index>(query_index) * dv;
  double error_squares = 0.0;
  double exact_squares = 0.0;
  double answer_squares = 0.0;
  double error_l1 = 0.0;
  double exact_l1 = 0.0;
  for (Index k = 0; k < dv; ++k) {
    difference[k] = z[k] - a[k];
    error_squares += difference[k] * difference[k];
    exact_squares += a[k] * a[k];
    answer_squares += z[k] * z[k];
    error_l1 += std::abs(difference[k]);
    exact_l1 += std::abs(a[k]);
  }
  const double e_norm = reference_.exponential_norm[query_index];
  return {.answer = answer,
          .exact_output = a,
          .dv = dv,
          .normalizer = exact.normalizer[query_index],
          .exponential_norm = e_norm,
          .probability_norm = e_norm / exact.normalizer[query_index],
          .value_spectral = reference_.value_spectral[row],
          .value_frobenius = reference_.value_frobenius[row],
          .error_norm = norm(error_squares, difference, dv),
          .exact_norm = norm(exact_squares, a, dv),
          .answer_norm = norm(answer_squares, z, dv),
          .error_l1 = error_l1,
          .exact_l1 = exact_l1};
}

void ErrorAccumulator::add(Index r, int g, const Answer& answer) {
  const std::size_t query_index = r * stream_.shape.heads_per_kv + g;
  const ScoredAnswer scored_answer = scored(r, g, answer);
  if (!std::all_of(answer.answer.begin(), answer.answer.end(),
                   [](double z) { return std::isfinite(z); })) {
    throw CellError("the answer is not finite at row " + std::to_string(reference_.exact.rows[r]) +
                    ", query head " + std::to_string(g) + " of the group");
  }
  for (Column& column : columns_) {
    if (!column.is_computed) continue;
    if (column.metric->has_meaning != nullptr && !column.metric->has_meaning(answer)) {
      column.has_meaning = false;
      continue;
    }
    const MetricValue value = column.metric->of_row(scored_answer);
    if (value) column.values[query_index] = std::isfinite(*value) ? *value : kOverflowed;
  }
}

void ErrorAccumulator::summarise(const Column& column, std::vector<MetricValue>& numbers) const {
  const OverRows over_rows = column.metric->over_rows;
  std::vector<double> values;
  if (column.has_meaning && column.overflows() == 0) {
    values.reserve(column.values.size());
    for (const double value : column.values) {
      if (!std::isnan(value)) values.push_back(value);
    }
  }
  if (over_rows == OverRows::kSum) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    numbers.push_back(column.has_meaning ? MetricValue(sum) : std::nullopt);
    return;
  }
  if (over_rows == OverRows::kRootMeanSquare) {
    numbers.push_back(values.empty() ? std::nullopt : MetricValue(root_mean_square(values)));
    return;
  }
  const auto summary =
      values.empty() ? std::nullopt : std::optional<Distribution>(distribution(std::move(values)));
  if (over_rows == OverRows::kMean) {
    numbers.push_back(summary ? MetricValue(summary->mean) : std::nullopt);
    return;
  }
  for (const DistributionNumber& each : kDistributionNumbers) {
    numbers.push_back(summary ? MetricValue((*summary).*each.number) : std::nullopt);
  }
  if (over_rows != OverRows::kDistributionAndLast) return;
  numbers.emplace_back();
  if (!summary) return;
  for (const double value : last_values(*column.metric)) {
    if (!std::isnan(value)) numbers.back() = std::max(numbers.back().value_or(value), value);
  }
}

std::vector<double> ErrorAccumulator::last_values(const Metric& metric) const {
  if (reference_.exact.rows.empty() || reference_.exact.rows.back() != stream_.shape.tokens - 1) {
    return {};
  }
  const auto column = std::find_if(columns_.begin(), columns_.end(),
                                   [&](const Column& each) { return each.metric == &metric; });
  return {column->values.end() - stream_.shape.heads_per_kv, column->values.end()};
}

CellMetrics ErrorAccumulator::metrics(const StoredErrors& stored,
                                      std::vector<Overflow>* overflows) const {
  const auto queries = std::ssize(reference_.exact.max_logit);
  const StackedAnswers stacked{{difference_.data(), queries, stream_.shape.dv}, reference_, stored};
  std::vector<MetricValue> numbers;
  auto column = columns_.begin();
  for (const Metric& metric : all_metrics()) {
    Index overflowed = 0;
    if (metric.of_all != nullptr) {
      numbers.push_back(metric.of_all(stacked));
      if (numbers.back() && !std::isfinite(*numbers.back())) {
        numbers.back().reset();
        overflowed = queries;
      }
    } else {
      overflowed = column->overflows();
      summarise(*column++, numbers);
    }
    if (overflows != nullptr && overflowed > 0) overflows->push_back({metric.path, overflowed});
  }
  return CellMetrics(std::move(numbers));
}

RowValues ErrorAccumulator::row_values() const {
  RowValues out;
  out.rows = reference_.exact.rows;
  const std::size_t heads_per_kv = stream_.shape.heads_per_kv;
  const std::size_t rows = out.rows.size();
  for (const Column& column : columns_) {
    if (column.metric->column.empty()) continue;
    std::vector<double>& values = out.columns.emplace_back(rows * heads_per_kv);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t g = 0; g < heads_per_kv; ++g) {
        values[g * rows + r] = column.values[r * heads_per_kv + g];
      }
    }
  }
  return out;
}

Index ErrorAccumulator::undefined_rows() const {
  Index count = 0;
  for (std::size_t query_index = 0; query_index < reference_.exact.max_logit.size();
       ++query_index) {
    const bool left_out = std::any_of(columns_.begin(), columns_.end(), [&](const Column& column) {
      return column.has_meaning && std::isnan(column.values[query_index]);
    });
    count += left_out ? 1 : 0;
  }
  return count;
}

}  // namespace kvbench
