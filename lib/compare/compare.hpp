// Two results of the same cells, held against each other: `kvbench compare`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/compared_results.hpp"
#include "json/json.hpp"
#include "numerics/matrix_view.hpp"
#include "results/mean_interval.hpp"

namespace kvbench {

// Metrics of which less is better: errors, memory, counters, timing.
struct CompareRules {
  std::vector<std::string> metrics;  // paths from the cell; memory.fraction is always compared
  double tolerance = 0.02;           // relative increase that is not a regression
  double absolute_tolerance = 1e-9;  // values below it count as equal to it; above 0

  // All that are read: those that are compared, memory.fraction, and memory.exact_bytes, which it
  // is weighed by.
  std::vector<std::string> all_metrics() const;

  // Every error, each by its mean over rows if it is a distribution; the Frobenius error first.
  static std::vector<std::string> default_metrics();
  // Metrics of records of whole layers.
  static std::vector<std::string> default_layer_metrics();
};

// Error of a metric to compare, with a remedy.
std::optional<std::string> compared_metric_error(const std::string& path);

// A mean over units with its 95 % interval (results/mean_interval.hpp); none with one group of
// units.
struct IntervalEstimate {
  double mean = 0.0;
  std::optional<std::pair<double, double>> ci95;
};

enum class Verdict { kSame, kBetter, kWorse, kUnclear };
const char* verdict_word(Verdict verdict);  // "same", "better", "WORSE", "unclear"

// One metric of one setting. Unit = (dump, sequence, layer, KV head); per unit the mean over the
// seeds that both results have.
struct MetricComparison {
  std::string metric;
  Index units = 0;  // 0: in no pair are both numbers, and nothing below is set
  Index worse = 0;  // units in which B is above A, beyond the absolute tolerance
  Index better = 0;
  double a = 0.0;  // mean over units; of memory.fraction bytes over bytes
  double b = 0.0;
  IntervalEstimate difference;        // B - A
  IntervalEstimate ratio;             // B / A, geometric: a few large errors do not make the mean
  UnitLevel over = UnitLevel::kHead;  // the groups of the intervals, and how many there are
  Index groups = 0;
  Verdict verdict = Verdict::kSame;
  Json largest_unit;  // where B / A is largest: dump, sequence, layer, kv_head, a, b, ratio
};

// Cells of one algorithm, label (of A), parameters and storage.
struct SettingComparison {
  Json setting;                          // algorithm, label, params; storage where not float
  Index cells = 0;                       // pairs that both results have computed
  Index units_asked = 0;                 // units of A with any cell of the setting
  std::vector<MetricComparison> errors;  // in the order of the rules
  MetricComparison memory;               // memory.fraction
};

struct Comparison {
  std::vector<SettingComparison> settings;  // in the order of A
  Index pairs = 0;                          // cells whose key both have, whatever their status
  Index without_number = 0;                 // those of them that are ok in neither
  std::vector<Json> lost;    // a number in A and none in B: cell_reference(), `reason`
  std::vector<Json> gained;  // the reverse
  std::vector<Json> only_a;  // cell_reference()s of keys that the other results do not have
  std::vector<Json> only_b;

  // Comparisons whose verdict is kWorse, each with its setting.
  std::vector<std::pair<const SettingComparison*, const MetricComparison*>> regressions() const;
  bool passed() const { return lost.empty() && regressions().empty(); }
};

// Pairs cells by `key` without `device`. A metric is worse if the ratio is above 1 + tolerance and
// its interval does not reach below 1 or no unit is better; better likewise; unclear if it is
// beyond the tolerance otherwise. Both results hold rules.all_metrics(). Throws InputError where
// they have no cell in common, with what keeps them apart.
Comparison compare_results(const ComparedResults& a, const ComparedResults& b,
                           const CompareRules& rules);

Json comparison_json(const Comparison& comparison, const CompareRules& rules);

}  // namespace kvbench
