#include "metrics/metric_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "metrics/distribution.hpp"
#include "numerics/norm.hpp"

namespace kvbench {
namespace {

// ||max(a, 1e-8)||
double clamped_norm(const ScoredAnswer& scored) {
  NormSum sum;
  for (Index k = 0; k < scored.dv; ++k) sum.add(std::max(scored.exact_output[k], 1e-8));
  return sum.value();
}

// ||N^ - N||
double numerator_distance(const ScoredAnswer& scored) {
  NormSum sum;
  for (Index k = 0; k < scored.dv; ++k) {
    sum.add(scored.answer.numerator[k] - scored.exact_output[k] * scored.normalizer);
  }
  return sum.value();
}

// 0 where both vectors are zero, 1 where exactly one is. Evaluated as half the squared distance of
// the unit vectors, which keeps its digits where they nearly agree.
double cosine_distance(const ScoredAnswer& scored) {
  const double z_norm = scored.answer_norm;
  const double a_norm = scored.exact_norm;
  if (z_norm == 0.0 || a_norm == 0.0) return z_norm == a_norm ? 0.0 : 1.0;
  double sum = 0.0;
  for (Index k = 0; k < scored.dv; ++k) {
    const double difference = scored.answer.answer[k] / z_norm - scored.exact_output[k] / a_norm;
    sum += difference * difference;
  }
  return 0.5 * sum;
}

// Four at a time, so that comparisons need not wait for each other.
double largest_entry(ConstMatrix matrix) {
  std::array<double, 4> largest{};
  for (Index i = 0; i < matrix.rows; ++i) {
    const double* row = matrix.row(i);
    Index k = 0;
    for (; k + 4 <= matrix.cols; k += 4) {
      for (std::size_t l = 0; l < 4; ++l) {
        largest[l] = std::max(largest[l], std::abs(row[k + static_cast<Index>(l)]));
      }
    }
    for (; k < matrix.cols; ++k) largest[0] = std::max(largest[0], std::abs(row[k]));
  }
  return *std::max_element(largest.begin(), largest.end());
}

bool rows_are_tokens(const Answer& answer) { return answer.rows_are_tokens; }
bool answers_are_clamped(const Answer& answer) { return answer.clamped.has_value(); }
bool is_stored(const Answer& answer) { return answer.is_stored; }
bool kept_mass_is_known(const Answer& answer) { return answer.kept_mass.has_value(); }

using Scored = const ScoredAnswer&;
using Stacked = const StackedAnswers&;
using Value = MetricValue;

std::vector<Metric> metric_rows() {
  return {
      {.path = "errors.relative_frobenius_error",
       .definition = "||Z - A||_F / ||A||_F, all scored rows stacked",
       .of_all =
           [](Stacked s) {
             return ratio(frobenius_norm(s.difference), s.reference.output_frobenius);
           }},
      {.path = "errors.relative_spectral_error",
       .definition = "||Z - A||_op / ||A||_op, all scored rows stacked",
       .of_all =
           [](Stacked s) {
             return ratio(spectral_norm(s.difference), s.reference.output_spectral);
           }},
      {.path = "errors.relative_max_error",
       .definition = "max |Z - A| / max |A|",
       .of_all =
           [](Stacked s) { return ratio(largest_entry(s.difference), s.reference.output_max); }},
      {.path = "errors.relative_l2",
       .definition = "||z - a|| / ||a|| per row and query head",
       .source = "BalanceKV section 4.1",
       .of_row = [](Scored s) { return ratio(s.error_norm, s.exact_norm); },
       .column = "relative_l2"},
      {.path = "errors.relative_l2_posclamp_mean",
       .definition = "mean of ||z - a|| / ||max(a, 1e-8)||",
       .source = "BalanceKV, the released code's metric",
       .of_row = [](Scored s) { return ratio(s.error_norm, clamped_norm(s)); },
       .over_rows = OverRows::kMean},
      {.path = "errors.relative_rms",
       .definition = "root of the mean of (||z - a|| / ||a||)^2 over rows and query heads",
       .of_row = [](Scored s) { return ratio(s.error_norm, s.exact_norm); },
       .over_rows = OverRows::kRootMeanSquare},
      {.path = "errors.relative_l1",
       .definition = "||z - a||_1 / ||a||_1 per row and query head",
       .of_row = [](Scored s) { return ratio(s.error_l1, s.exact_l1); }},
      {.path = "errors.epsilon_spectral",
       .definition =
           "||z - a|| / (||p||_2 ||V_i||_op); last: the largest over query heads at row n - 1",
       .source = "SubGen eq. 3",
       .of_row =
           [](Scored s) { return ratio(s.error_norm, s.probability_norm * s.value_spectral); },
       .over_rows = OverRows::kDistributionAndLast,
       .column = "epsilon_spectral"},
      {.path = "errors.epsilon_frobenius",
       .definition =
           "||z - a|| / (||p||_2 ||V_i||_F); last: the largest over query heads at row n - 1",
       .source = "BalanceKV eq. 2",
       .of_row =
           [](Scored s) { return ratio(s.error_norm, s.probability_norm * s.value_frobenius); },
       .over_rows = OverRows::kDistributionAndLast,
       .column = "epsilon_frobenius"},
      {.path = "errors.numerator_error",
       .definition = "||N^ - N|| / (||e^x||_2 ||V_i||_op)",
       .source = "SubGen eq. 6",
       .of_row =
           [](Scored s) {
             return ratio(numerator_distance(s), s.exponential_norm * s.value_spectral);
           },
       .column = "numerator_error",
       .of_sketch = true},
      {.path = "errors.normalizer_error",
       .definition = "|tau - Z| / Z",
       .source = "SubGen eq. 5",
       .of_row = [](Scored s) -> Value {
         return std::abs(s.answer.normalizer - s.normalizer) / s.normalizer;
       },
       .column = "normalizer_error",
       .of_sketch = true},
      {.path = "errors.cosine_distance",
       .definition = "1 - <z, a> / (||z|| ||a||)",
       .of_row = [](Scored s) -> Value { return cosine_distance(s); }},
      {.path = "errors.kl_divergence",
       .definition = "KL(p^ || p), p^_j proportional to w_den exp(x_j)",
       .of_row = [](Scored s) { return s.answer.kl_divergence; },
       .has_meaning = rows_are_tokens,
       .can_be_negative = true,
       .of_sketch = true},
      {.path = "errors.score_error",
       .definition = "root mean square over the held tokens of x~ - x less its mean weighted by p, "
                     "x~ from decoded keys",
       .of_row = [](Scored s) { return s.answer.score_error; },
       .has_meaning = is_stored,
       .of_sketch = true},
      {.path = "errors.key_error",
       .definition = "||K~ - K||_F / ||K||_F of the keys held at row n - 1, K~ decoded",
       .of_all = [](Stacked s) { return s.stored.keys; },
       .of_sketch = true},
      {.path = "errors.value_error",
       .definition = "||V~ - V||_F / ||V||_F of the values held at row n - 1, V~ decoded",
       .of_all = [](Stacked s) { return s.stored.values; },
       .of_sketch = true},
      {.path = "mass.kept",
       .definition = "sum of p_j over distinct tokens whose value is kept",
       .source = "Keyformer Fig. 3",
       .of_row = [](Scored s) { return s.answer.kept_mass; },
       .has_meaning = kept_mass_is_known,
       .column = "kept_mass",
       .less_is_better = false},
      {.path = "mass.numerator",
       .definition = "sum w_num exp(x) / Z",
       .of_row = [](Scored s) -> Value { return s.answer.numerator_mass; },
       .less_is_better = false},
      {.path = "mass.denominator",
       .definition = "sum w_den exp(x) / Z",
       .of_row = [](Scored s) -> Value { return s.answer.denominator_mass; },
       .less_is_better = false},
      {.path = "counters.empty_denominator",
       .definition = "rows x query heads answered by z = 0 (clamped to the values' range if the "
                     "method has that rule), because the sketch's denominator is not positive or "
                     "less than its rule requires",
       .of_row = [](Scored s) -> Value { return s.answer.empty_denominator ? 1.0 : 0.0; },
       .over_rows = OverRows::kSum},
      {.path = "counters.clamped_answers",
       .definition = "rows x query heads whose answer was clamped to the range of the values, for "
                     "methods with this rule",
       .of_row = [](Scored s) -> Value { return *s.answer.clamped ? 1.0 : 0.0; },
       .over_rows = OverRows::kSum,
       .has_meaning = answers_are_clamped},
  };
}

std::vector<std::string> parts_of(const Metric& metric) {
  if (metric.of_all != nullptr || metric.over_rows == OverRows::kMean ||
      metric.over_rows == OverRows::kRootMeanSquare || metric.over_rows == OverRows::kSum) {
    return {""};
  }
  std::vector<std::string> parts;
  for (const DistributionNumber& number : kDistributionNumbers) parts.emplace_back(number.name);
  if (metric.over_rows == OverRows::kDistributionAndLast) parts.emplace_back("last");
  return parts;
}

}  // namespace

MetricValue ratio(double numerator, double denominator) {
  if (!std::isfinite(numerator) || !std::isfinite(denominator)) {
    return std::numeric_limits<double>::infinity();
  }
  if (denominator != 0.0) return numerator / denominator;
  return numerator == 0.0 ? MetricValue(0.0) : std::nullopt;
}

const std::vector<Metric>& all_metrics() {
  static const std::vector<Metric> metrics = metric_rows();
  return metrics;
}

const std::vector<MetricNumber>& metric_numbers() {
  static const std::vector<MetricNumber> numbers = [] {
    std::vector<MetricNumber> all;
    for (const Metric& metric : all_metrics()) {
      for (const std::string& part : parts_of(metric)) {
        all.push_back({part.empty() ? metric.path : metric.path + "." + part, part, &metric});
      }
    }
    return all;
  }();
  return numbers;
}

const std::vector<std::string>& row_columns() {
  static const std::vector<std::string> columns = [] {
    std::vector<std::string> all;
    for (const Metric& metric : all_metrics()) {
      if (!metric.column.empty()) all.push_back(metric.column);
    }
    return all;
  }();
  return columns;
}

CellMetrics::CellMetrics(std::vector<MetricValue> numbers) : numbers_(std::move(numbers)) {
  if (numbers_.size() != metric_numbers().size()) throw std::logic_error("wrong number of metrics");
}

std::size_t CellMetrics::index_of(std::string_view path) {
  const std::vector<MetricNumber>& numbers = metric_numbers();
  const auto found = std::find_if(numbers.begin(), numbers.end(),
                                  [&](const MetricNumber& each) { return each.path == path; });
  if (found == numbers.end()) throw std::logic_error("no metric " + std::string(path));
  return found - numbers.begin();
}

const std::vector<double>& RowValues::operator[](std::string_view column) const {
  const std::vector<std::string>& names = row_columns();
  const auto found = std::find(names.begin(), names.end(), column);
  if (found == names.end()) throw std::logic_error("no column " + std::string(column));
  return columns.at(found - names.begin());
}

}  // namespace kvbench
