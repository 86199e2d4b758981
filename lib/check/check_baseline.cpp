// Bounds that hold results against frozen ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "check/check_rules.hpp"

namespace kvbench {

void check_baseline(const BaselineRule& rule, const Bound& bound, const MatchedCells& cells,
                    const std::vector<const Json*>& baseline, BoundOutcome& outcome) {
  std::map<std::string, const Json*> frozen;
  for (const Json* cell : baseline) frozen.emplace(portable_key(*cell), cell);
  std::set<std::string> seen;
  double largest = 0.0;

  const auto test = [&](const Json& cell, bool is_sound) {
    const std::string key = portable_key(cell);
    seen.insert(key);
    const auto found = frozen.find(key);
    const auto error = [&](const std::string& reason, std::optional<double> value,
                           std::optional<double> allowed) {
      outcome.violations.push_back({cell_reference(cell), reason, value, allowed});
    };
    const std::optional<double> value = number_at(cell, bound.metric_place);
    if (found == frozen.end()) {
      error(rule.path + " has no such cell", value, {});
      return;
    }
    const std::optional<double> before = number_at(*found->second, bound.metric_place);
    if (!value && !before) {
      if (cell.value("status", "") == "ok") outcome.undefined.push_back(cell_reference(cell));
      return;
    }
    if (!value || !before) {
      error(value ? "is null in " + rule.path + ", a number here"
                  : "is a number in " + rule.path + ", null here",
            value, before);
      return;
    }
    outcome.tested += is_sound ? 1 : 0;
    const double off = std::fabs(*value - *before);
    if (*before != 0.0) largest = std::max(largest, off / std::fabs(*before));
    const double allowed =
        std::max(rule.relative_tolerance * std::fabs(*before), rule.absolute_tolerance);
    if (!(off <= allowed)) {
      error(*before == 0.0
                ? fmt::format("is {:.3g} off the baseline", off)
                : fmt::format("is off the baseline by {:.3g} of it", off / std::fabs(*before)),
            value, before);
    }
  };
  for (const Json* cell : cells.sound) test(*cell, true);
  for (const Json* cell : cells.vacuous) test(*cell, false);
  for (const Json* cell : cells.skipped) test(*cell, false);

  for (const Json* cell : cells.failed) seen.insert(portable_key(*cell));

  for (const auto& [key, cell] : frozen) {
    if (seen.count(key) != 0 || cell->value("status", "") != "ok") continue;
    outcome.violations.push_back({cell_reference(*cell),
                                  "is in " + rule.path + ", but no cell here has its key",
                                  {},
                                  number_at(*cell, bound.metric_place)});
  }
  outcome.evidence["cells_of_baseline"] = baseline.size();
  outcome.evidence["largest_relative_difference"] = largest;
}

}  // namespace kvbench
