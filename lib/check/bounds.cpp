#include "check/bounds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "check/bounds_keys.hpp"
#include "json/document.hpp"
#include "json/file_kind.hpp"
#include "json/input_file.hpp"
#include "json/pointer.hpp"
#include "json/reader.hpp"
#include "results/cell_metric.hpp"
#include "results/layer_record.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

constexpr const char* kWanted = "--bounds names a bounds file";

class BoundReader {
 public:
  BoundReader(const json& given, std::string pointer, const std::string& folder, ErrorList& errors)
      : given_(given), pointer_(std::move(pointer)), folder_(folder), errors_(errors) {}

  std::optional<Bound> read() {
    const std::size_t before = errors_.count();
    if (!read_object(given_, bound_keys(), "a bound", pointer_, errors_)) return std::nullopt;
    bound_.pointer = pointer_;
    read_name();
    read_metric();
    if (const json* where = member(given_, "where"))
      bound_.where = read_selector(*where, child(pointer_, "where"), errors_);
    if (const auto kind = read_kind()) {
      switch (*kind) {
        case kLimitKeys:
          bound_.rule = limit_rule();
          break;
        case kPairedKeys:
          bound_.rule = paired_rule();
          break;
        case kBaselineKeys:
          bound_.rule = baseline_rule();
          break;
        case kRangeKeys:
          bound_.rule = range_rule();
          break;
        case kTrivialKeys:
          bound_.rule = trivial_rule();
          break;
      }
    }
    if (errors_.count() != before) return std::nullopt;
    return std::move(bound_);
  }

 private:
  void error(const std::string& key, const std::string& what) {
    errors_.add(child(pointer_, key), what);
  }
  bool has(const std::string& key) const { return member(given_, key) != nullptr; }

  void read_name() {
    const json* name = member(given_, "name");
    if (name == nullptr) {
      error("name", "this key is missing; name the bound, its violations are listed under it");
    } else if (!name->is_string() || name->get_ref<const std::string&>().empty()) {
      error("name", "must be a name in quotes, got " + shown(*name));
    } else {
      bound_.name = *name;
    }
  }

  void read_metric() {
    const json* metric = member(given_, "metric");
    const std::string example = "for example \"errors.relative_l2.mean\"";
    if (metric == nullptr) {
      error("metric", "this key is missing; name the number of a cell that is bounded, " + example);
      return;
    }
    if (!metric->is_string()) {
      error("metric",
            "must be the path of a number in a cell, " + example + ", got " + shown(*metric));
      return;
    }
    bound_.metric = *metric;
    if (const auto wrong = metric_error(bound_.metric)) {
      error("metric", *wrong);
    } else {
      bound_.metric_place = metric_place(bound_.metric);
      bound_.of_layers = is_layer_metric(bound_.metric);
    }
  }

  // Which kind of bound this is; nothing if that has an error.
  std::optional<BoundKindIndex> read_kind() {
    std::vector<std::string> all;
    std::vector<std::string> chosen;
    std::optional<BoundKindIndex> kind;
    std::size_t kinds = 0;
    for (std::size_t k = 0; k < bound_kinds().size(); ++k) {
      bool any = false;
      for (const std::string& key : bound_kinds()[k].choosing) {
        all.push_back(key);
        if (!has(key)) continue;
        chosen.push_back(key);
        any = true;
      }
      if (!any) continue;
      kind = static_cast<BoundKindIndex>(k);
      ++kinds;
    }
    if (kinds != 1) {
      errors_.add(pointer_,
                  kinds == 0 ? fmt::format("bounds nothing; give one of {}", fmt::join(all, ", "))
                             : fmt::format("{} exclude each other; write a bound for each",
                                           fmt::join(chosen, " and ")));
      return std::nullopt;
    }
    for (std::size_t k = 0; k < bound_kinds().size(); ++k) {
      if (k == *kind) continue;
      for (const auto* keys : {&bound_kinds()[k].needed, &bound_kinds()[k].others}) {
        for (const std::string& key : *keys) {
          if (!has(key)) continue;
          error(key, fmt::format("needs a bound with {}, this one has {}; leave it out",
                                 fmt::join(bound_kinds()[k].choosing, " or "),
                                 fmt::join(chosen, " and ")));
        }
      }
    }
    if (has("false_alarm") && *kind != kPairedKeys && !has("failure_rate")) {
      error("false_alarm",
            "belongs to a statistical bound, with than or failure_rate; leave it "
            "out");
    }
    return kind;
  }

  // A finite number in its range.
  std::optional<double> number(const std::string& key) {
    const json* given = member(given_, key);
    if (given == nullptr) return std::nullopt;
    const BoundNumber& range = bound_number(key);
    const double value = given->is_number() ? given->get<double>() : NAN;
    const bool fits = range.open ? value > range.low && value < range.high
                                 : value >= range.low && value <= range.high;
    if (fits && std::isfinite(value)) return value;
    const std::string words =
        range.low == -HUGE_VAL ? "a number"
        : range.open ? fmt::format("a number above {:g} and below {:g}", range.low, range.high)
                     : fmt::format("a number of at least {:g}", range.low);
    error(key, "must be " + words + ", got " + shown(*given));
    return std::nullopt;
  }

  LimitRule limit_rule() {
    LimitRule rule;
    const json& limit = *member(given_, "limit");
    if (limit.is_object()) {
      const std::string pointer = child(pointer_, "limit");
      read_object(limit, {"param"}, "limit", pointer, errors_);
      const json* param = member(limit, "param");
      if (param == nullptr || !param->is_string()) {
        errors_.add(pointer, "must be a number or {\"param\": \"NAME\"}, got " + shown(limit));
      } else {
        rule.param = *param;
      }
    } else if (limit.is_number()) {
      rule.number = limit.get<double>();
    } else {
      error("limit", "must be a number or {\"param\": \"NAME\"}, got " + shown(limit));
    }
    rule.failure_rate = number("failure_rate");
    rule.false_alarm = number("false_alarm").value_or(rule.false_alarm);
    return rule;
  }

  PairedRule paired_rule() {
    PairedRule rule;
    rule.than = read_selector(*member(given_, "than"), child(pointer_, "than"), errors_);
    if (member(given_, "than")->is_object() && rule.than.conditions.empty()) {
      error("than",
            "must name the cells to compare with, for example {\"algorithm\": \"uniform\"}");
    }
    const json* test = member(given_, "test");
    if (test != nullptr && *test != "sign") {
      error("test", "must be \"sign\", the only test, got " + shown(*test));
    }
    read_paired_by(rule);
    rule.false_alarm = number("false_alarm").value_or(rule.false_alarm);
    rule.median_ratio_at_most = number("median_ratio_at_most");
    return rule;
  }

  void read_paired_by(PairedRule& rule) {
    const json* fields = member(given_, "paired_by");
    const std::string example = "for example [\"layer\", \"kv_head\", \"seed\"]";
    if (fields == nullptr) {
      error("paired_by",
            "this key is missing; list the fields in which both cells of a pair agree, " + example);
      return;
    }
    if (!fields->is_array() || fields->empty()) {
      error("paired_by", "must be a list of fields, " + example + ", got " + shown(*fields));
      return;
    }
    const std::string pointer = child(pointer_, "paired_by");
    std::set<std::string> seen;
    for (std::size_t i = 0; i < fields->size(); ++i) {
      const json& name = (*fields)[i];
      const auto field = name.is_string() ? cell_field(name.get<std::string>()) : std::nullopt;
      if (!name.is_string()) {
        errors_.add(child(pointer, i), "must be a field in quotes, got " + shown(name));
      } else if (!field) {
        errors_.add(child(pointer, i), unknown_field(name.get<std::string>()));
      } else if (!seen.insert(field->name).second) {
        errors_.add(child(pointer, i), field->name + " is listed twice; keep one of them");
      } else {
        rule.paired_by.push_back(*field);
      }
    }
  }

  BaselineRule baseline_rule() {
    BaselineRule rule;
    const json& path = *member(given_, "baseline");
    if (!path.is_string() || path.get_ref<const std::string&>().empty()) {
      error("baseline", "must be the path of a results file, got " + shown(path));
    } else {
      rule.path = path;
      rule.found = (std::filesystem::path(folder_) / rule.path).lexically_normal().string();
    }
    if (!has("relative_tolerance")) {
      error("relative_tolerance",
            "this key is missing; give how far from the baseline a value may "
            "be, as a fraction of it, for example 0.02");
    }
    rule.relative_tolerance = number("relative_tolerance").value_or(0.0);
    rule.absolute_tolerance = number("absolute_tolerance").value_or(0.0);
    return rule;
  }

  RangeRule range_rule() {
    RangeRule rule{number("at_least"), number("at_most")};
    if (rule.at_least && rule.at_most && *rule.at_least > *rule.at_most) {
      error("at_least", fmt::format("{:g} is above at_most, {:g}; no cell can satisfy both",
                                    *rule.at_least, *rule.at_most));
    }
    return rule;
  }

  TrivialRule trivial_rule() {
    const auto& known = trivial_metric_paths();
    if (!bound_.metric_place.empty() &&
        std::find(known.begin(), known.end(), bound_.metric) == known.end()) {
      error("metric", bound_.metric +
                          " is not an error that trivial answers have; use one of errors, for "
                          "example errors.epsilon_spectral.last");
    }
    return {number("below_trivial").value_or(1.0)};
  }

  const json& given_;
  std::string pointer_;
  const std::string& folder_;
  ErrorList& errors_;
  Bound bound_;
};

void read_bound_list(const json& document, const std::string& folder, BoundsFile& file,
                     ErrorList& errors) {
  const json* given = member(document, "bounds");
  if (given == nullptr || !given->is_array() || given->empty()) {
    errors.add("/bounds", given == nullptr
                              ? "this key is missing; list the bounds"
                              : "must be a list with at least one bound, got " + shown(*given));
    return;
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < given->size(); ++i) {
    const std::string pointer = child("/bounds", i);
    auto bound = BoundReader((*given)[i], pointer, folder, errors).read();
    if (!bound) continue;
    if (!names.insert(bound->name).second) {
      errors.add(child(pointer, "name"),
                 shown(bound->name) + " is the name of an earlier bound; choose another");
    }
    file.bounds.push_back(std::move(*bound));
  }
}

}  // namespace

std::string Bound::kind() const {
  if (const auto* limit = std::get_if<LimitRule>(&rule)) {
    return limit->failure_rate ? "failure rate" : "limit";
  }
  if (std::holds_alternative<PairedRule>(rule)) return "paired";
  if (std::holds_alternative<BaselineRule>(rule)) return "baseline";
  return std::holds_alternative<TrivialRule>(rule) ? "trivial" : "range";
}

BoundsFile parse_bounds(const std::string& text, const std::string& path) {
  refuse_hdf5(text, path, kWanted);
  ErrorList errors(path);
  const json document = parse_document(text, path, errors);
  refuse_other_kind(document, "a bounds file", path, kWanted);
  BoundsFile file;
  file.path = path;
  if (!document.is_object()) errors.throw_if_any();
  if (read_object(document, {"schema_version", "bounds"}, "a bounds file", "", errors)) {
    const json* version = member(document, "schema_version");
    if (version == nullptr) {
      errors.add("/schema_version", "this key is missing; add \"schema_version\": 1");
    } else if (*version != 1) {
      errors.add("/schema_version",
                 "must be 1, the version this program reads, got " + shown(*version));
    }
    const std::string folder = std::filesystem::path(path).parent_path().string();
    read_bound_list(document, folder, file, errors);
  }
  errors.throw_if_any();
  return file;
}

BoundsFile read_bounds(const std::string& path) {
  return parse_bounds(read_text(path, kWanted), path);
}

}  // namespace kvbench
