#include "check/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"

namespace kvbench {
namespace {

constexpr double kMinSeeds = 3.0;
constexpr double kDeviations = 4.0;
constexpr double kMinRoom = 1e-6;
constexpr double kRoomOverDifference = 10.0;
constexpr double kRounding = 1e-12;  // rounding of what is exact on one machine and not on another

// A list would be read as any of its elements.
Json as_one_value(const Json& value) { return value.is_array() ? Json::array({value}) : value; }

std::string unit_of(const Json& key) {
  Json unit = Json::array();
  for (const char* name : {"dump", "sequence", "layer", "kv_head"}) {
    unit.push_back(key.value(name, Json()));
  }
  return to_line(unit);
}

double relative_difference(double a, double b) {
  const double largest = std::max(std::abs(a), std::abs(b));
  return largest > 0.0 ? std::abs(a - b) / largest : 0.0;
}

// The least number of three digits that is not below `value`.
double rounded_up(double value) {
  if (!(value > 0.0)) return 0.0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2.0);
  const double digits = std::ceil(value / unit);
  double out = std::stod(fmt::format("{:.3g}", digits * unit));
  if (out < value) out = std::stod(fmt::format("{:.3g}", (digits + 1.0) * unit));
  return out;
}

}  // namespace

BoundsSuggestion::BoundsSuggestion(std::vector<std::string> metrics)
    : metrics_(std::move(metrics)) {
  for (const std::string& metric : metrics_) places_.push_back(metric_place(metric));
}

BoundsSuggestion::Setting& BoundsSuggestion::setting_of(const Json& cell) {
  const Json& key = cell.at("key");
  Json where;
  where["algorithm"] = key.value("algorithm", Json());
  where["label"] = cell.value("label", Json());
  std::string words;
  for (const auto& [name, value] : key.at("params").items()) {
    where["params." + name] = as_one_value(value);
    words +=
        fmt::format(" {}={}", name, value.is_string() ? value.get<std::string>() : to_line(value));
  }
  const std::string without_storage = to_line(where);
  const Json storage = key.value("storage", Json());
  for (const char* side : {"keys", "values"}) {
    const Json codec = storage.is_object() ? storage.value(side, Json()) : Json();
    if (!codec.is_object()) continue;
    for (const auto& [name, value] : codec.items()) {
      where[fmt::format("storage.{}.{}", side, name)] = as_one_value(value);
      words += fmt::format(" {}.{}={}", side, name,
                           value.is_string() ? value.get<std::string>() : to_line(value));
    }
  }
  const auto [found, fresh] = find_.try_emplace(to_line(where), settings_.size());
  if (fresh) {
    Setting setting;
    setting.name = where["label"].is_string() ? where["label"].get<std::string>() : "?";
    setting.name += words;
    setting.where = std::move(where);
    setting.without_storage = without_storage;
    setting.has_storage = !storage.is_null();
    setting.numbers.resize(metrics_.size());
    settings_.push_back(std::move(setting));
  }
  return settings_[found->second];
}

void BoundsSuggestion::add(const Json& cell, std::size_t index, const std::string& path) {
  require_cell(cell, index, path);
  if (cell.at("status") != "ok") return;
  const Json& key = cell.at("key");
  Setting& setting = setting_of(cell);
  setting.is_seeded = setting.is_seeded || !key.value("seed", Json()).is_null();
  const auto [first, is_new] = setting.first.try_emplace(portable_key(cell));
  if (is_new) first->second.assign(metrics_.size(), NAN);
  for (std::size_t m = 0; m < metrics_.size(); ++m) {
    Numbers& numbers = setting.numbers[m];
    const auto value = number_at(cell, places_[m]);
    if (!value) {
      numbers.is_null = true;
      continue;
    }
    numbers.largest = std::max(numbers.largest, *value);
    double& before = first->second[m];
    if (!is_new && !std::isnan(before)) {
      numbers.largest_difference =
          std::max(numbers.largest_difference, relative_difference(before, *value));
      continue;  // the same draws say nothing of noise
    }
    before = *value;
    Moments& unit = numbers.units[unit_of(key)];
    unit.count += 1.0;
    const double step = *value - unit.mean;
    unit.mean += step / unit.count;
    unit.squares += step * (*value - unit.mean);
  }
}

BoundsSuggestion::Verdict BoundsSuggestion::own_limit(const Setting& setting,
                                                      std::size_t metric) const {
  const Numbers& numbers = setting.numbers[metric];
  if (numbers.is_null) return {0.0, metrics_[metric] + " is null in a cell"};
  const double room = std::max(kMinRoom, kRoomOverDifference * numbers.largest_difference);
  const double largest = numbers.largest * (1.0 + room) + kRounding;
  if (!setting.is_seeded) return {largest, ""};
  double deviation = 0.0;
  for (const auto& [unit, moments] : numbers.units) {
    if (moments.count < kMinSeeds) {
      return {0.0, fmt::format("has {} seeds of a unit, {} are needed to see their noise; give the "
                               "second run others (--set seeds.first=..) or more (seeds.count)",
                               moments.count, kMinSeeds)};
    }
    deviation = std::max(deviation, std::sqrt(moments.squares / (moments.count - 1.0)));
  }
  return {largest + kDeviations * deviation, ""};
}

// `where` of a setting in floats also selects cells that differ in their storage alone.
BoundsSuggestion::Verdict BoundsSuggestion::limit_of(const Setting& setting,
                                                     std::size_t metric) const {
  Verdict verdict = own_limit(setting, metric);
  if (setting.has_storage) return verdict;
  for (const Setting& other : settings_) {
    if (!other.has_storage || other.without_storage != setting.without_storage) continue;
    const Verdict of_other = own_limit(other, metric);
    if (verdict.trouble.empty()) verdict.trouble = of_other.trouble;
    verdict.limit = std::max(verdict.limit, of_other.limit);
  }
  return verdict;
}

Json BoundsSuggestion::bounds() const {
  Json bounds = Json::array();
  for (const Setting& setting : settings_) {
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      const Verdict verdict = limit_of(setting, m);
      if (!verdict.trouble.empty()) continue;
      bounds.push_back({{"name", setting.name + ": " + metrics_[m]},
                        {"where", setting.where},
                        {"metric", metrics_[m]},
                        {"limit", rounded_up(verdict.limit)}});
    }
  }
  return {{"schema_version", 1}, {"bounds", std::move(bounds)}};
}

std::vector<std::string> BoundsSuggestion::left_out() const {
  std::vector<std::string> lines;
  for (const Setting& setting : settings_) {
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      const Verdict verdict = limit_of(setting, m);
      if (!verdict.trouble.empty()) lines.push_back(setting.name + ": " + verdict.trouble);
    }
  }
  return lines;
}

}  // namespace kvbench
