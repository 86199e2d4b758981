#include "output/one_number.hpp"

#include <fmt/core.h>

#include <set>
#include <vector>

#include "core/error.hpp"
#include "json/json.hpp"
#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"
#include "results/layer_record.hpp"

namespace kvbench {

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

double mean_of(const Plan& plan, const CellRecords& records, const std::string& metric) {
  const Json::json_pointer place = metric_place(metric);
  double sum = 0.0;
  double count = 0.0;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (plan.cells[c].skip_reason) continue;
    const auto value = number_at(records.read(c), place);
    if (!value) {
      throw InputError(fmt::format("--print: {} is null in cell {}; results.json has the others",
                                   metric, plan.cells[c].id.text()));
    }
    sum += *value;
    count += 1.0;
  }
  return sum / count;
}

}  // namespace kvbench
