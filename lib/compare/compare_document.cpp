// Document that `kvbench compare --json` prints.
#include "compare/compare.hpp"

namespace kvbench {
namespace {

Json estimate_json(const IntervalEstimate& estimate) {
  Json out = {{"mean", estimate.mean}, {"ci95", nullptr}};
  if (estimate.ci95) out["ci95"] = {estimate.ci95->first, estimate.ci95->second};
  return out;
}

Json metric_json(const MetricComparison& metric) {
  Json out = {{"units", metric.units}};
  if (metric.units == 0) return out;
  out["a"] = metric.a;
  out["b"] = metric.b;
  out["difference"] = estimate_json(metric.difference);
  out["ratio"] = estimate_json(metric.ratio);
  out["ci95_over"] = nullptr;
  if (metric.groups > 1) {
    out["ci95_over"] = {{"level", level_name(metric.over)}, {"groups", metric.groups}};
  }
  out["units_worse"] = metric.worse;
  out["units_better"] = metric.better;
  out["largest_unit"] = metric.largest_unit;
  out["verdict"] = metric.verdict == Verdict::kWorse ? "worse" : verdict_word(metric.verdict);
  return out;
}

}  // namespace

Json comparison_json(const Comparison& comparison, const CompareRules& rules) {
  Json out;
  out["passed"] = comparison.passed();
  out["tolerance"] = rules.tolerance;
  out["absolute_tolerance"] = rules.absolute_tolerance;
  out["pairs"] = comparison.pairs;
  out["pairs_without_number"] = comparison.without_number;
  out["settings"] = Json::array();
  for (const SettingComparison& setting : comparison.settings) {
    Json entry = setting.setting;
    entry["cells"] = setting.cells;
    entry["units_asked"] = setting.units_asked;
    for (const MetricComparison& metric : setting.errors) {
      entry["metrics"][metric.metric] = metric_json(metric);
    }
    entry["metrics"][setting.memory.metric] = metric_json(setting.memory);
    out["settings"].push_back(std::move(entry));
  }
  out["lost"] = comparison.lost;
  out["gained"] = comparison.gained;
  out["only_a"] = comparison.only_a;
  out["only_b"] = comparison.only_b;
  return out;
}

}  // namespace kvbench
