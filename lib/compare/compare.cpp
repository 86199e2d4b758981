#include "compare/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "results/cell_metric.hpp"
#include "results/layer_record.hpp"
#include "results/record.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr const char* kMemory = "memory.fraction";
constexpr const char* kExactBytes = "memory.exact_bytes";

bool has_common_key(const KeyIndex& a, const KeyIndex& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (b.find(a[i])) return true;
  }
  return false;
}

// The fields of the key in which two results have no value in common.
std::string differing_key_fields(const ComparedResults& a, const ComparedResults& b) {
  std::vector<std::string> apart;
  for (const auto& [name, ours] : a.key_values()) {
    const auto theirs = b.key_values().find(name);
    const bool meet = theirs != b.key_values().end() && has_common_key(ours, theirs->second);
    if (!meet) apart.push_back(name);
  }
  if (apart.empty()) return "the files share no combination of key values";
  return fmt::format("the files share no {}", fmt::join(apart, ", "));
}

// Sums over the seeds of one unit, per metric.
struct UnitSums {
  std::vector<double> a, b;
  std::vector<Index> count;

  explicit UnitSums(std::size_t metrics) : a(metrics, 0.0), b(metrics, 0.0), count(metrics, 0) {}
};

// Sums by unit of A, in their order there.
using SettingSums = std::map<std::size_t, UnitSums>;

// Places of two cells of one key.
struct Pair {
  std::uint32_t a, b;
};

// Sorts pairs by setting; one that is not two numbers goes to the comparison at once.
class Pairing {
 public:
  Pairing(const ComparedResults& a, const ComparedResults& b, const CompareRules& rules,
          Comparison& comparison)
      : a_(a), b_(b), metrics_(rules.all_metrics()), comparison_(comparison) {}

  void pair_all() {
    ComparedResults::Reader of_a(a_);
    ComparedResults::Reader of_b(b_);
    for (std::size_t i = 0; i < a_.size(); ++i) {
      const auto other = b_.keys().find(a_.keys()[i]);
      const ComparedResults::Cell cell = of_a.at(i);
      std::vector<std::size_t>& asked = asked_[setting_of(cell)];
      if (asked.empty() || asked.back() != cell.unit) asked.push_back(cell.unit);
      if (!other) {
        comparison_.only_a.push_back(a_.reference(cell));
      } else {
        const Pair places{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(*other)};
        add(places, cell, of_b.at(*other));
      }
    }
    for (std::size_t i = 0; i < b_.size(); ++i) {
      if (!a_.keys().find(b_.keys()[i])) comparison_.only_b.push_back(b_.reference(of_b.at(i)));
    }
  }

  // Setting of A and, where they are an axis, number of tokens.
  using Setting = std::pair<std::size_t, Index>;
  using Settings = std::map<Setting, std::vector<Pair>>;
  const Settings& settings() const { return settings_; }
  // Units of A with any cell of the setting.
  Index asked(const Setting& setting) const {
    const std::vector<std::size_t>& units = asked_.at(setting);
    return std::set<std::size_t>(units.begin(), units.end()).size();
  }
  const std::vector<std::string>& metrics() const { return metrics_; }

  // Sums over the pairs of one setting.
  SettingSums sums(const std::vector<Pair>& pairs) const {
    ComparedResults::Reader of_a(a_);
    ComparedResults::Reader of_b(b_);
    SettingSums sums;
    for (const Pair& places : pairs) {
      const ComparedResults::Cell a = of_a.at(places.a);
      const ComparedResults::Cell b = of_b.at(places.b);
      UnitSums& unit = sums.try_emplace(a.unit, metrics_.size()).first->second;
      for (std::size_t m = 0; m < metrics_.size(); ++m) {
        if (std::isnan(a.values[m]) || std::isnan(b.values[m])) continue;
        unit.a[m] += a.values[m];
        unit.b[m] += b.values[m];
        ++unit.count[m];
      }
    }
    return sums;
  }

 private:
  void add(const Pair& places, const ComparedResults::Cell& a, const ComparedResults::Cell& b) {
    ++comparison_.pairs;
    if (!a.trouble.empty() && !b.trouble.empty()) {
      ++comparison_.without_number;
      return;
    }
    if (!b.trouble.empty()) return report(comparison_.lost, a, b.trouble);
    if (!a.trouble.empty()) return report(comparison_.gained, a, a.trouble);
    settings_[setting_of(a)].push_back(places);
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      const bool before = !std::isnan(a.values[m]);
      const bool now = !std::isnan(b.values[m]);
      if (before && !now) {
        report(comparison_.lost, a, metrics_[m] + " is null");
      } else if (now && !before) {
        report(comparison_.gained, a, metrics_[m] + " was null");
      }
    }
  }

  Setting setting_of(const ComparedResults::Cell& cell) const {
    return {cell.setting, a_.tokens_vary() ? cell.tokens : 0};
  }

  void report(std::vector<Json>& cells, const ComparedResults::Cell& cell,
              const std::string& reason) {
    cells.push_back(a_.reference(cell));
    cells.back()["reason"] = reason;
  }

  const ComparedResults& a_;
  const ComparedResults& b_;
  std::vector<std::string> metrics_;
  Comparison& comparison_;
  Settings settings_;
  std::map<Setting, std::vector<std::size_t>> asked_;  // units; cells of one that follow, once
};

// One metric of the units of a setting that have it.
struct UnitValues {
  std::vector<double> a, b, difference, log_ratio;
  std::vector<std::size_t> unit;  // units of A
  std::vector<double> scale;      // that a, b and difference were multiplied by; empty: 1

  // Makes the mean of shares that of `weights`, one of each unit: bytes over bytes.
  void weigh(const std::vector<double>& weights) {
    double sum = 0.0;
    for (const double weight : weights) sum += weight;
    for (std::size_t u = 0; u < weights.size(); ++u) {
      scale.push_back(weights[u] * weights.size() / sum);
      for (auto* values : {&a, &b, &difference}) (*values)[u] *= scale[u];
    }
  }
};

UnitValues values_of(const SettingSums& setting, std::size_t metric, double floor) {
  UnitValues values;
  for (const auto& [place, unit] : setting) {
    if (unit.count[metric] == 0) continue;
    const double seeds = unit.count[metric];
    const double a = unit.a[metric] / seeds;
    const double b = unit.b[metric] / seeds;
    values.a.push_back(a);
    values.b.push_back(b);
    values.difference.push_back(b - a);
    values.log_ratio.push_back(std::log(std::max(b, floor) / std::max(a, floor)));
    values.unit.push_back(place);
  }
  return values;
}

// memory.fraction, of units whose exact bytes are known, by which the units weigh.
UnitValues memory_of(const SettingSums& setting, std::size_t fraction, std::size_t exact,
                     double floor) {
  SettingSums known = setting;
  std::erase_if(known, [&](const auto& unit) { return !(unit.second.a[exact] > 0.0); });
  UnitValues values = values_of(known, fraction, floor);
  std::vector<double> weights;
  for (const std::size_t place : values.unit) {
    const UnitSums& unit = known.at(place);
    weights.push_back(unit.a[exact] / unit.count[exact]);
  }
  values.weigh(weights);
  return values;
}

double mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / values.size();
}

Verdict verdict_on(const MetricComparison& metric, double tolerance) {
  const IntervalEstimate& ratio = metric.ratio;
  if (ratio.mean > 1.0 + tolerance) {
    const bool above = !ratio.ci95 || ratio.ci95->first >= 1.0;
    return above || metric.better == 0 ? Verdict::kWorse : Verdict::kUnclear;
  }
  if (ratio.mean * (1.0 + tolerance) < 1.0) {
    const bool below = !ratio.ci95 || ratio.ci95->second <= 1.0;
    return below || metric.worse == 0 ? Verdict::kBetter : Verdict::kUnclear;
  }
  return Verdict::kSame;
}

IndependentGroups groups_of(const UnitValues& values, const ComparedResults& a) {
  std::vector<UnitNesting> nesting;
  for (const std::size_t unit : values.unit) nesting.push_back(a.nesting()[unit]);
  return independent_groups(nesting);
}

MetricComparison compare_metric(const std::string& metric, const UnitValues& values,
                                const ComparedResults& a, const CompareRules& rules) {
  MetricComparison out;
  out.metric = metric;
  out.units = std::ssize(values.a);
  if (out.units == 0) return out;
  out.a = mean(values.a);
  out.b = mean(values.b);
  out.difference.mean = mean(values.difference);
  out.ratio.mean = std::exp(mean(values.log_ratio));
  const IndependentGroups groups = groups_of(values, a);
  out.over = groups.level;
  out.groups = groups.count;
  if (const auto difference = mean_interval(values.difference, groups)) {
    out.difference.ci95 = {difference->low, difference->high};
  }
  if (const auto ratio = mean_interval(values.log_ratio, groups)) {
    out.ratio.ci95 = {std::exp(ratio->low), std::exp(ratio->high)};
  }
  for (const double ratio : values.log_ratio) {
    out.worse += ratio > 0.0 ? 1 : 0;
    out.better += ratio < 0.0 ? 1 : 0;
  }
  out.verdict = verdict_on(out, rules.tolerance);
  const std::size_t largest =
      std::max_element(values.log_ratio.begin(), values.log_ratio.end()) - values.log_ratio.begin();
  out.largest_unit = a.units()[values.unit[largest]];
  const double scale = values.scale.empty() ? 1.0 : values.scale[largest];
  out.largest_unit["a"] = values.a[largest] / scale;
  out.largest_unit["b"] = values.b[largest] / scale;
  out.largest_unit["ratio"] = std::exp(values.log_ratio[largest]);
  return out;
}

void compare_settings(const ComparedResults& a, const Pairing& pairing, const CompareRules& rules,
                      Comparison& comparison) {
  std::vector<Pairing::Settings::const_pointer> settings;
  for (const auto& each : pairing.settings()) settings.push_back(&each);
  const std::vector<std::string>& metrics = pairing.metrics();
  std::vector<SettingComparison> all(settings.size());
  parallel_for(std::ssize(settings), [&](Index index) {
    const std::size_t i = index;
    const auto& [identity, pairs] = *settings[i];
    const SettingSums sums = pairing.sums(pairs);
    all[i].setting = a.settings()[identity.first];
    if (a.tokens_vary()) all[i].setting["tokens"] = identity.second;
    all[i].cells = std::ssize(pairs);
    all[i].units_asked = pairing.asked(identity);
    const double floor = rules.absolute_tolerance;
    const std::size_t memory = metrics.size() - 2;  // and its weights
    for (std::size_t m = 0; m < memory; ++m) {
      all[i].errors.push_back(compare_metric(metrics[m], values_of(sums, m, floor), a, rules));
    }
    all[i].memory = compare_metric(kMemory, memory_of(sums, memory, memory + 1, floor), a, rules);
  });
  for (SettingComparison& setting : all) {
    if (setting.cells > 0) comparison.settings.push_back(std::move(setting));
  }
}

}  // namespace

std::vector<std::string> CompareRules::all_metrics() const {
  std::vector<std::string> all = metrics;
  all.insert(all.end(), {kMemory, kExactBytes});
  return all;
}

std::vector<std::string> CompareRules::default_metrics() {
  const std::string first = "errors.relative_frobenius_error";
  std::vector<std::string> metrics = {first};
  for (const std::string& error : error_paths()) {
    const std::string path = "errors." + error;
    const std::size_t dot = error.find('.');
    const bool is_mean = dot == std::string::npos || error.substr(dot) == ".mean";
    if (is_mean && path != first && less_is_better(path)) metrics.push_back(path);
  }
  return metrics;
}

std::vector<std::string> CompareRules::default_layer_metrics() {
  std::vector<std::string> metrics;
  for (const std::string& path : layer_metric_paths()) {
    const bool is_mean = path.ends_with(".mean") || !path.starts_with("errors.");
    if (is_mean && less_is_better(path)) metrics.push_back(path);
  }
  return metrics;
}

std::optional<std::string> compared_metric_error(const std::string& path) {
  if (const auto problem = metric_error(path)) return problem;
  if (path == kMemory) return path + " is always compared; leave it out";
  if (less_is_better(path)) return std::nullopt;
  return path +
         " has no direction (lower is not better); compare errors, memory, counters or timing";
}

const char* verdict_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "WORSE";
    case Verdict::kUnclear:
      return "unclear";
  }
  return "";
}

std::vector<std::pair<const SettingComparison*, const MetricComparison*>> Comparison::regressions()
    const {
  std::vector<std::pair<const SettingComparison*, const MetricComparison*>> all;
  for (const SettingComparison& setting : settings) {
    for (const MetricComparison& metric : setting.errors) {
      if (metric.verdict == Verdict::kWorse) all.emplace_back(&setting, &metric);
    }
    if (setting.memory.verdict == Verdict::kWorse) all.emplace_back(&setting, &setting.memory);
  }
  return all;
}

Comparison compare_results(const ComparedResults& a, const ComparedResults& b,
                           const CompareRules& rules) {
  Comparison comparison;
  Pairing pairing(a, b, rules, comparison);
  pairing.pair_all();
  if (comparison.pairs == 0) {
    throw InputError(fmt::format(
        "{} and {} have no {} in common: {}; run the same sweep on the same dump for both",
        a.path(), b.path(), a.member() == "cells" ? "cell" : "record of a whole layer",
        differing_key_fields(a, b)));
  }
  compare_settings(a, pairing, rules, comparison);
  return comparison;
}

}  // namespace kvbench
