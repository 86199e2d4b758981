#include "metrics/trivial_answers.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "metrics/error_accumulator.hpp"

namespace kvbench {
namespace {

// Sum of the values that a row sees. Rows ascend, and their first visible tokens too.
class VisibleSum {
 public:
  explicit VisibleSum(const Stream& stream) : stream_(stream), sum_(stream.shape.dv) {}

  const std::vector<double>& at(Index row) {
    const Index first = stream_.shape.first_visible(row);
    if (first != first_) {  // summed from scratch: subtracting would leave rounding errors behind
      std::fill(sum_.begin(), sum_.end(), 0.0);
      first_ = next_ = first;
    }
    for (; next_ < stream_.shape.visible_end(row); ++next_) {
      const double* v = stream_.values.row(next_);
      for (std::size_t k = 0; k < sum_.size(); ++k) sum_[k] += v[k];
    }
    return sum_;
  }

 private:
  const Stream& stream_;
  std::vector<double> sum_;
  Index first_ = 0;
  Index next_ = 0;
};

// Scores `answer_at(row)`, the same for all query heads.
ErrorAccumulator scored(const Stream& stream, const Reference& reference,
                        const std::function<void(Index, std::vector<double>&)>& answer_at) {
  ErrorAccumulator errors(stream, reference, ErrorAccumulator::Metrics::kOfAnswer);
  Answer answer;
  answer.answer.assign(stream.shape.dv, 0.0);
  answer.numerator = answer.answer;
  answer.rows_are_tokens = false;
  const std::vector<Index>& rows = reference.exact.rows;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    answer_at(rows[r], answer.answer);
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      errors.add(r, g, answer);
    }
  }
  return errors;
}

void add_kappa(const Stream& stream, const Reference& reference, const ErrorAccumulator& zero,
               TrivialAnswers& out) {
  const std::size_t rows = reference.exact.rows.size();
  const RowValues values = zero.row_values();
  const std::vector<double>& epsilon = values["epsilon_spectral"];  // [G][R]
  std::vector<double> all;
  for (std::size_t i = 0; i < epsilon.size(); ++i) {
    // Without values both norms are 0, and so is their ratio.
    const bool without_values = reference.value_spectral[i % rows] == 0.0;
    if (!(epsilon[i] > 0.0 && std::isfinite(epsilon[i])) && !without_values) continue;
    const double kappa = without_values ? 0.0 : 1.0 / epsilon[i];
    if (i % rows + 1 == rows && reference.exact.rows.back() == stream.shape.tokens - 1) {
      out.kappa_last = std::max(out.kappa_last.value_or(kappa), kappa);
    }
    all.push_back(kappa);
  }
  if (!all.empty()) out.kappa = distribution(std::move(all));
}

}  // namespace

const std::vector<std::size_t>& answer_numbers() {
  static const std::vector<std::size_t> numbers = [] {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < metric_numbers().size(); ++i) {
      if (metric_numbers()[i].metric->is_of_answer()) all.push_back(i);
    }
    return all;
  }();
  return numbers;
}

TrivialAnswers trivial_answers(const Stream& stream, const Reference& reference) {
  TrivialAnswers out;
  const ErrorAccumulator zero = scored(stream, reference, [](Index, const std::vector<double>&) {});
  out.zero = zero.metrics();
  add_kappa(stream, reference, zero, out);
  VisibleSum sum(stream);
  const ErrorAccumulator mean_value =
      scored(stream, reference, [&](Index row, std::vector<double>& z) {
        const double count = stream.shape.visible_end(row) - stream.shape.first_visible(row);
        const std::vector<double>& total = sum.at(row);
        for (std::size_t k = 0; k < z.size(); ++k) z[k] = total[k] / count;
      });
  out.mean_value = mean_value.metrics();
  for (const Metric& metric : all_metrics()) {
    if (metric.of_row == nullptr || metric.over_rows != OverRows::kDistributionAndLast) continue;
    for (const ErrorAccumulator* answer : {&zero, &mean_value}) {
      for (const double value : answer->last_values(metric)) {
        if (std::isnan(value)) continue;
        const auto place = out.least_last.emplace(metric.path, value).first;
        place->second = std::min(place->second, value);
      }
    }
  }
  return out;
}

}  // namespace kvbench
