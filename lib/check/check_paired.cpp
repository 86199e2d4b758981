// Bounds that compare two algorithms, cell by cell.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "check/binomial.hpp"
#include "check/check_rules.hpp"
#include "system/key_index.hpp"

namespace kvbench {
namespace {

// The fields in which both cells of a pair agree: those of the rule, and what no comparison should
// mix, unless `than` itself names it.
std::vector<CellField> pairing_fields(const PairedRule& rule) {
  std::vector<CellField> fields = rule.paired_by;
  for (const char* name : {"dump", "sequence"}) {
    const auto is_it = [&](const CellField& field) { return field.name == name; };
    const bool in_than = std::any_of(
        rule.than.conditions.begin(), rule.than.conditions.end(),
        [&](const CellSelector::Condition& condition) { return is_it(condition.field); });
    if (!in_than && std::none_of(fields.begin(), fields.end(), is_it)) {
      fields.push_back(cell_field(name).value());
    }
  }
  return fields;
}

Json pair_key(const std::vector<CellField>& fields, const Json& cell) {
  Json key = Json::object();
  for (const CellField& field : fields) {
    const Json* value = value_at(cell, field.place);
    key[field.name] = value == nullptr ? Json(nullptr) : *value;
  }
  return key;
}

// Parameters in which cells differ that should be one.
std::string what_differs(const std::vector<Json>& cells) {
  std::string names;
  const Json& first = cells.front().at("key");
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const auto& [name, value] : first.items()) {
    if (name == "params") continue;
    for (const Json& cell : cells) {
      if (cell.at("key").value(name, Json()) == value) continue;
      add(name);
      break;
    }
  }
  for (const auto& [name, value] : first.at("params").items()) {
    for (const Json& cell : cells) {
      if (cell.at("key").at("params").value(name, Json()) == value) continue;
      add("params." + name);
      break;
    }
  }
  return names;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// Finite numbers only reach a file.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Places of cells by what they have in common with others.
class Counterparts {
 public:
  void add(const std::string& key, std::uint32_t place) {
    const auto [number, is_new] = keys_.add(hash128(key));
    const auto entry = static_cast<std::uint32_t>(places_.size());
    if (is_new) {
      ends_.push_back({entry, entry});
    } else {
      next_[std::exchange(ends_[number].second, entry)] = entry;
    }
    places_.push_back(place);
    next_.push_back(kNone);
  }

  // The places of `key` in the order in which they came.
  Places of(const std::string& key) const {
    Places found;
    const auto number = keys_.find(hash128(key));
    if (!number) return found;
    for (std::uint32_t i = ends_[*number].first; i != kNone; i = next_[i]) {
      found.push_back(places_[i]);
    }
    return found;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  KeyIndex keys_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends_;  // first and last entry, by key
  std::vector<std::uint32_t> next_;                            // entry of the same key, by entry
  Places places_;                                              // by entry
};

struct Signs {
  Index lower = 0;
  Index higher = 0;
  Index ties = 0;
  std::vector<double> log_ratios;  // log ratios of pairs of positive numbers

  void add(double value, double other) {
    ++(value < other ? lower : value > other ? higher : ties);
    if (value > 0.0 && other > 0.0) log_ratios.push_back(std::log(value / other));
  }
};

}  // namespace

void check_paired(const PairedRule& rule, const Bound& bound, const MatchedCells& cells,
                  const Places& others, BoundOutcome& outcome) {
  const std::vector<CellField> fields = pairing_fields(rule);
  CheckedRecords::Reader reader(cells.all);
  CheckedRecords::Reader reader_of_others(cells.all);
  Counterparts counterparts;
  for (const std::uint32_t other : others) {
    counterparts.add(to_line(pair_key(fields, reader.at(other))), other);
  }

  Signs signs;
  for (const std::uint32_t place : cells.sound) {
    const Json cell = reader.at(place);
    const Json key = pair_key(fields, cell);
    const Places found = counterparts.of(to_line(key));
    const auto error = [&](const std::string& reason) {
      outcome.violations.push_back({cell_reference(cell), reason, {}, {}});
    };
    if (found.empty()) {
      error(fmt::format("no cell of {} has {}", describe(rule.than), to_line(key)));
      continue;
    }
    if (found.size() > 1) {
      std::vector<Json> several;
      for (const std::uint32_t other : found) several.push_back(reader_of_others.at(other));
      error(
          fmt::format("{} cells of {} have {}; add to paired_by or to than what tells them apart: "
                      "{}",
                      found.size(), describe(rule.than), to_line(key), what_differs(several)));
      continue;
    }
    const Json other = reader_of_others.at(found.front());
    const std::optional<double> value = tested_metric(bound, cell, outcome);
    const std::optional<double> against = number_at(other, bound.metric_place);
    if (!against) {
      error(fmt::format("its counterpart {} is {}: {} is null", other.value("id", ""),
                        other.value("status", ""), bound.metric));
    }
    if (!value || !against) continue;
    ++outcome.tested;
    signs.add(*value, *against);
  }
  if (outcome.tested == 0) return;

  const Index decided = signs.lower + signs.higher;
  const double p = binomial_upper_tail(signs.lower, decided, 0.5);
  const double effect = signs.log_ratios.empty() ? NAN : median(signs.log_ratios);
  const double ratio = std::exp(effect);
  outcome.evidence["pairs"] = outcome.tested;
  outcome.evidence["lower"] = signs.lower;
  outcome.evidence["higher"] = signs.higher;
  outcome.evidence["equal"] = signs.ties;
  outcome.evidence["p_value"] = p;
  outcome.evidence["false_alarm"] = rule.false_alarm;
  outcome.evidence["median_log_ratio"] = finite(effect);
  outcome.evidence["median_ratio"] = finite(ratio);
  if (!(p <= rule.false_alarm)) {
    const double least = std::ceil(-std::log2(rule.false_alarm));
    outcome.violations.push_back(
        {nullptr,
         decided < least
             ? fmt::format("{} pairs are too few to show anything at {:.3g}: it takes {:.0f} or "
                           "more that differ; run more seeds",
                           decided, rule.false_alarm, least)
             : fmt::format("lower than {} in {} of {} pairs that differ: p = {:.3g}, not below "
                           "{:.3g}; median ratio {:.4g}",
                           describe(rule.than), signs.lower, decided, p, rule.false_alarm, ratio),
         p, rule.false_alarm});
  }
  if (rule.median_ratio_at_most && !(ratio <= *rule.median_ratio_at_most)) {
    outcome.violations.push_back(
        {nullptr, fmt::format("the median ratio to {} is {:.4g}", describe(rule.than), ratio),
         std::isfinite(ratio) ? std::optional(ratio) : std::nullopt, rule.median_ratio_at_most});
  }
}

}  // namespace kvbench
