#include "output/one_number.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "json/json.hpp"
#include "output/log.hpp"
#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"
#include "results/layer_record.hpp"
#include "sweep/cell_identity.hpp"
#include "system/error.hpp"

namespace kvbench {

namespace {

// The reason why a cell has no such number.
std::string no_number(const std::string& metric, const PlannedCell& cell, const Json& record) {
  std::vector<std::string> names;
  for (const auto& [name, value] : record.at("derived").items()) {
    if (value.is_number()) names.push_back("derived." + name);
  }
  if (!metric.starts_with("derived.") || record.contains(metric_place(metric))) {
    return fmt::format("--print: {} is null in cell {}; results.json has the others", metric,
                       cell.id.text());
  }
  return fmt::format("--print: {} has no {} in cell {}; {}", cell.algorithm->id, metric,
                     cell.id.text(),
                     names.empty() ? "choose a number of `kvbench list metrics`"
                                   : fmt::format("choose one of {}", fmt::join(names, ", ")));
}

}  // namespace

void require_one_setting(const Plan& plan, const std::string& metric) {
  ErrorList errors;
  if (const auto error = cell_metric_error(metric)) errors.add("--print: " + *error);
  std::set<std::string> settings;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason) continue;
    settings.insert(to_line({cell.algorithm->id, *cell.label, Json(params_json(*cell.params)),
                             plan.groups[cell.group].first_tokens}));
    if (settings.size() > 1) break;
  }
  if (settings.size() != 1) {
    errors.add(
        fmt::format("--print: the sweep has {} of algorithm and parameters, one is needed; "
                    "narrow it with --set or --only",
                    settings.empty() ? "no setting" : "several settings"));
  }
  errors.throw_if_any();
}

void print_one_number(const Plan& plan, const CellRecords& records, const std::string& metric) {
  struct Unit {
    double sum = 0.0;
    double weight = 0.0;
    double cells = 0.0;
  };
  const bool is_share = metric == "memory.fraction";
  const Json::json_pointer place = metric_place(is_share ? "memory.peak_bytes" : metric);
  const Json::json_pointer weight = metric_place("memory.exact_bytes");
  std::size_t skipped = 0;
  std::map<std::pair<std::size_t, int>, Unit> units;  // by group and KV head
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    const PlannedCell cell = plan.cells[c];
    Unit& unit = units[{cell.group, cell.kv_head}];
    if (cell.skip_reason) {
      ++skipped;
      continue;
    }
    const Json record = records.read(c);
    const auto value = number_at(record, place);
    const auto of = is_share ? number_at(record, weight) : std::optional(1.0);
    if (!value || !of) throw InputError(no_number(metric, cell, record));
    unit.sum += *value;
    unit.weight += *of;
    unit.cells += 1.0;
  }
  double sum = 0.0;
  double weights = 0.0;
  std::size_t computed = 0;
  for (const auto& [name, unit] : units) {
    if (unit.cells == 0.0) continue;
    ++computed;
    sum += unit.sum / unit.cells;
    weights += unit.weight / unit.cells;
  }
  if (skipped > 0) {
    log_text(
        "kvbench: warning: --print: {} is over {} of {} KV heads, {} cells were skipped; `kvbench "
        "plan` of the same sweep lists why\n",
        metric, computed, units.size(), skipped);
  }
  print_text("{}\n", sum / weights);
}

}  // namespace kvbench
