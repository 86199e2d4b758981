// Bounds that hold results against frozen ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "check/check_rules.hpp"
#include "system/key_index.hpp"

namespace kvbench {

void check_baseline(const BaselineRule& rule, const Bound& bound, const MatchedCells& cells,
                    const CheckedRecords& baseline, const Places& frozen, BoundOutcome& outcome) {
  CheckedRecords::Reader reader(cells.all);
  CheckedRecords::Reader reader_of_frozen(baseline);
  KeyIndex keys;
  Places place_of;  // by key
  for (const std::uint32_t place : frozen) {
    if (keys.add(hash128(portable_key(reader_of_frozen.at(place)))).second) {
      place_of.push_back(place);
    }
  }
  std::vector<bool> seen(keys.size(), false);
  const auto find = [&](const Json& cell) {
    const auto found = keys.find(hash128(portable_key(cell)));
    if (found) seen[*found] = true;
    return found;
  };
  double largest = 0.0;

  const auto test = [&](const Json& cell, bool is_sound) {
    const auto found = find(cell);
    const auto error = [&](const std::string& reason, std::optional<double> value,
                           std::optional<double> allowed) {
      outcome.violations.push_back({cell_reference(cell), reason, value, allowed});
    };
    const std::optional<double> value = number_at(cell, bound.metric_place);
    if (!found) {
      error(rule.path + " has no such cell", value, {});
      return;
    }
    const std::optional<double> before =
        number_at(reader_of_frozen.at(place_of[*found]), bound.metric_place);
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
  for (const std::uint32_t cell : cells.sound) test(reader.at(cell), true);
  for (const std::uint32_t cell : cells.vacuous) test(reader.at(cell), false);
  for (const std::uint32_t cell : cells.skipped) test(reader.at(cell), false);

  for (const std::uint32_t cell : cells.failed) find(reader.at(cell));

  std::map<std::string, std::uint32_t> lacking;  // by key, as text
  for (std::size_t i = 0; i < place_of.size(); ++i) {
    if (seen[i]) continue;
    const Json cell = reader_of_frozen.at(place_of[i]);
    if (cell.value("status", "") == "ok") lacking.emplace(portable_key(cell), place_of[i]);
  }
  for (const auto& [key, place] : lacking) {
    const Json cell = reader_of_frozen.at(place);
    outcome.violations.push_back({cell_reference(cell),
                                  "is in " + rule.path + ", but no cell here has its key",
                                  {},
                                  number_at(cell, bound.metric_place)});
  }
  outcome.evidence["cells_of_baseline"] = frozen.size();
  outcome.evidence["largest_relative_difference"] = largest;
}

}  // namespace kvbench
