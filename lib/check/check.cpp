#include "check/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "check/check_rules.hpp"
#include "system/error.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

std::string text_of(const Json& cell, const char* name) {
  const auto found = cell.find(name);
  return found != cell.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_vacuous(const Json& cell) {
  const Json* value = value_at(cell, Json::json_pointer("/derived/vacuous"));
  return value != nullptr && *value == true;
}

// A dump may be named by its file's name; cells carry fingerprints.
CellSelector with_fingerprints(CellSelector selector, const CheckedResults& results) {
  for (CellSelector::Condition& condition : selector.conditions) {
    if (condition.field.name != "dump") continue;
    const std::vector<Json> given = condition.any_of;
    for (const Json& dump : results.rest().value("dumps", Json::array())) {
      if (!dump.is_object()) continue;
      const Json given_path = dump.value("path", Json());
      if (!given_path.is_string()) continue;
      const std::filesystem::path path = given_path.get<std::string>();
      for (const Json& name : given) {
        if (name == path.filename().string()) {
          condition.any_of.push_back(dump.value("fingerprint", Json()));
        }
      }
    }
  }
  return selector;
}

// Why a selector finds nothing: the first condition that no cell meets.
std::string why_none(const CellSelector& selector, const CheckedRecords& records, bool of_layers) {
  if (of_layers && records.size() == 0) {
    return "the results have no records of whole layers; they need the output projection (wo) or "
           "evidence in the dump, and settings that run on all KV heads of a layer";
  }
  for (const CellSelector::Condition& condition : selector.conditions) {
    std::set<std::string> words;
    bool met = false;
    CheckedRecords::Reader reader(records);
    for (std::size_t i = 0; i < records.size(); ++i) {
      const Json cell = reader.at(i);
      met = met || condition.holds(cell);
      const Json* value = value_at(cell, condition.field.place);
      if (value != nullptr && value->is_string()) words.insert(value->get<std::string>());
    }
    if (met) continue;
    const Json& wanted = condition.any_of.front();
    const std::vector<std::string> known(words.begin(), words.end());
    const std::string near =
        wanted.is_string() ? did_you_mean(wanted.get<std::string>(), known) : "";
    return fmt::format("no cell has {}{}", describe(condition), near);
  }
  return selector.conditions.empty() ? "the results have no cells"
                                     : "no cell has all of " + describe(selector);
}

MatchedCells sort_cells(const CheckedRecords& records, const Places& places,
                        BoundOutcome& outcome) {
  MatchedCells sorted{records, {}, {}, {}, {}};
  CheckedRecords::Reader reader(records);
  for (const std::uint32_t place : places) {
    const Json cell = reader.at(place);
    const std::string status = text_of(cell, "status");
    if (status == "skipped") {
      sorted.skipped.push_back(place);
      Json reference = cell_reference(cell);
      reference["reason"] = text_of(cell, "reason");
      outcome.skipped.push_back(std::move(reference));
    } else if (status != "ok") {
      sorted.failed.push_back(place);
      outcome.violations.push_back(
          {cell_reference(cell), "the cell failed: " + text_of(cell, "reason"), {}, {}});
    } else if (is_vacuous(cell)) {
      sorted.vacuous.push_back(place);
      outcome.vacuous.push_back(cell_reference(cell));
    } else {
      sorted.sound.push_back(place);
    }
  }
  return sorted;
}

// Every baseline file once, whatever number of bounds name it.
class Baselines {
 public:
  explicit Baselines(const BoundsFile& bounds) {
    ErrorList errors;
    for (const Bound& bound : bounds.bounds) {
      const auto* rule = std::get_if<BaselineRule>(&bound.rule);
      if (rule == nullptr || files_.count(rule->found) != 0) continue;
      try {
        const auto file = files_.try_emplace(rule->found, bounds, rule->found).first;
        file->second.require_distinct();
      } catch (const InputError& error) {
        std::error_code ignored;
        const bool is_there = std::filesystem::exists(rule->found, ignored);
        errors.add(fmt::format("{}: {}/baseline: {}; write it with kvbench check --write-baselines",
                               bounds.path, bound.pointer,
                               is_there ? error.what() : rule->found + ": no such file"));
      }
    }
    errors.throw_if_any();
  }

  const CheckedResults& at(const std::string& path) const { return files_.at(path); }

 private:
  std::map<std::string, CheckedResults> files_;
};

// Matches of every bound's selectors, found in one pass over each kind of records.
class Matches {
 public:
  Matches(const BoundsFile& bounds, const CheckedResults& results, const Baselines& baselines) {
    for (const Bound& bound : bounds.bounds) {
      const CellSelector where = with_fingerprints(bound.where, results);
      want(results, bound, where);
      if (const auto* paired = std::get_if<PairedRule>(&bound.rule)) {
        want(results, bound, with_fingerprints(paired->than, results));
      } else if (const auto* baseline = std::get_if<BaselineRule>(&bound.rule)) {
        want(baselines.at(baseline->found), bound, where);
      }
    }
    for (auto& [records, wanted] : wanted_) found_[records] = records->select(wanted);
  }

  // Unique places, in the constructor's order.
  Places next(const CheckedRecords& records) {
    return std::move(found_[&records][taken_[&records]++]);
  }

 private:
  void want(const CheckedResults& results, const Bound& bound, const CellSelector& selector) {
    wanted_[&results.records(bound.of_layers)].push_back(selector);
  }

  std::map<const CheckedRecords*, std::vector<CellSelector>> wanted_;
  std::map<const CheckedRecords*, std::vector<Places>> found_;
  std::map<const CheckedRecords*, std::size_t> taken_;
};

BoundOutcome check_bound(const Bound& bound, const CheckedResults& results,
                         const Baselines& baselines, Matches& matches) {
  BoundOutcome outcome;
  outcome.name = bound.name;
  outcome.kind = bound.kind();
  outcome.metric = bound.metric;
  const CheckedRecords& records = results.records(bound.of_layers);
  const CellSelector where = with_fingerprints(bound.where, results);
  Places matched = matches.next(records);
  std::string none = matched.empty() ? why_none(where, records, bound.of_layers) : "";
  if (const auto* limit = std::get_if<LimitRule>(&bound.rule); limit != nullptr && !limit->number) {
    CheckedRecords::Reader reader(records);
    std::erase_if(matched,
                  [&](std::uint32_t place) { return !limit_of(*limit, reader.at(place)); });
    if (none.empty()) none = fmt::format("no such cell has a number as params.{}", limit->param);
  }
  outcome.matched = std::ssize(matched);
  if (matched.empty()) outcome.violations.push_back({nullptr, "matches no cell: " + none, {}, {}});

  const MatchedCells cells = sort_cells(records, matched, outcome);
  if (const auto* limit = std::get_if<LimitRule>(&bound.rule)) {
    (limit->failure_rate ? check_failure_rate : check_limit)(*limit, bound, cells, outcome);
  } else if (const auto* paired = std::get_if<PairedRule>(&bound.rule)) {
    const CellSelector than = with_fingerprints(paired->than, results);
    const Places others = matches.next(records);
    if (others.empty()) {
      outcome.violations.push_back(
          {nullptr,
           "nothing to compare with: " + why_none(than, records, bound.of_layers),
           {},
           {}});
    } else {
      check_paired(*paired, bound, cells, others, outcome);
    }
  } else if (const auto* baseline = std::get_if<BaselineRule>(&bound.rule)) {
    const CheckedRecords& frozen = baselines.at(baseline->found).records(bound.of_layers);
    check_baseline(*baseline, bound, cells, frozen, matches.next(frozen), outcome);
  } else if (const auto* trivial = std::get_if<TrivialRule>(&bound.rule)) {
    check_trivial(*trivial, bound, cells, outcome);
  } else {
    check_range(std::get<RangeRule>(bound.rule), bound, cells, outcome);
  }
  if (outcome.tested == 0 && outcome.violations.empty()) {
    outcome.violations.push_back(
        {nullptr,
         fmt::format("no cell was tested: {} vacuous, {} skipped, {} undefined",
                     outcome.vacuous.size(), outcome.skipped.size(), outcome.undefined.size()),
         {},
         {}});
  }
  return outcome;
}

Json violation_json(const Violation& violation) {
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return {{"cell", violation.cell},
          {"value", number(violation.value)},
          {"allowed", number(violation.allowed)},
          {"reason", violation.reason}};
}

Json violations_json(const std::vector<Violation>& violations) {
  Json out = Json::array();
  for (const Violation& violation : violations) out.push_back(violation_json(violation));
  return out;
}

}  // namespace

bool CheckReport::passed() const {
  return violations.empty() &&
         std::all_of(bounds.begin(), bounds.end(), [](const BoundOutcome& b) { return b.held(); });
}

CheckReport check_bounds(const BoundsFile& bounds, const Json& results, const std::string& path) {
  return check_bounds(bounds, CheckedResults(bounds, results, path));
}

CheckReport check_bounds(const BoundsFile& bounds, const CheckedResults& results) {
  ErrorList errors;
  std::optional<Baselines> baselines;
  errors.gather([&] { results.require_distinct(); });
  errors.gather([&] { baselines.emplace(bounds); });
  errors.throw_if_any();
  CheckReport report;
  if (text_of(results.rest(), "status") != "complete") {
    report.violations.push_back(
        {nullptr,
         fmt::format("the results are incomplete: {} cells are there; finish the run first",
                     results.records(false).size()),
         {},
         {}});
  }
  Matches matches(bounds, results, *baselines);
  for (const Bound& bound : bounds.bounds) {
    report.bounds.push_back(check_bound(bound, results, *baselines, matches));
  }
  return report;
}

Json report_json(const CheckReport& report) {
  Json out;
  out["passed"] = report.passed();
  out["violations"] = violations_json(report.violations);
  out["bounds"] = Json::array();
  for (const BoundOutcome& bound : report.bounds) {
    out["bounds"].push_back({{"name", bound.name},
                             {"kind", bound.kind},
                             {"metric", bound.metric},
                             {"held", bound.held()},
                             {"matched", bound.matched},
                             {"tested", bound.tested},
                             {"evidence", bound.evidence},
                             {"vacuous", bound.vacuous},
                             {"skipped", bound.skipped},
                             {"undefined", bound.undefined},
                             {"violations", violations_json(bound.violations)}});
  }
  return out;
}

}  // namespace kvbench
