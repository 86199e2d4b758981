#include "output/compare_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "output/cell_text.hpp"
#include "output/failure_groups.hpp"
#include "output/table.hpp"
#include "output/terminal.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMaxCells = 20;

using Row = std::vector<std::string>;

std::string ratio_text(double ratio) {
  if (ratio >= 1e4 || ratio < 1e-3) return fmt::format("{:.2e}", ratio);
  return fmt::format("{:.4g}", ratio);
}

std::string interval_text(const IntervalEstimate& ratio) {
  if (!ratio.ci95) return "-";
  return fmt::format("{} .. {}", ratio_text(ratio.ci95->first), ratio_text(ratio.ci95->second));
}

std::string percent_text(double fraction) { return fmt::format("{:.2f}%", 100.0 * fraction); }

// Names of settings: the label, and the parameters in which settings of one algorithm differ.
std::map<const SettingComparison*, std::string> setting_names(const Comparison& comparison) {
  std::map<std::string, VaryingParams> params;
  const auto label = [](const SettingComparison& setting) {
    return label_text(text_of(setting.setting.at("label")),
                      text_of(setting.setting.at("algorithm")));
  };
  for (const SettingComparison& setting : comparison.settings) {
    params[label(setting)].add(setting.setting.at("params"));
  }
  std::map<const SettingComparison*, std::string> names;
  for (const SettingComparison& setting : comparison.settings) {
    const std::string varying =
        params_text(params.at(label(setting)).of(setting.setting.at("params")));
    std::string& name = names[&setting];
    name = label(setting) + (varying.empty() ? "" : " " + varying);
    if (setting.setting.contains("tokens")) name += " tokens=" + text_of(setting.setting["tokens"]);
  }
  return names;
}

// The most telling verdict over all metrics of a setting.
Verdict overall(const SettingComparison& setting) {
  std::vector<Verdict> all = {setting.memory.verdict};
  for (const MetricComparison& metric : setting.errors) all.push_back(metric.verdict);
  for (const Verdict verdict : {Verdict::kWorse, Verdict::kUnclear, Verdict::kBetter}) {
    if (std::find(all.begin(), all.end(), verdict) != all.end()) return verdict;
  }
  return Verdict::kSame;
}

Row setting_row(const SettingComparison& setting, const std::string& name) {
  Row row = {verdict_word(overall(setting)), name};
  const MetricComparison& error = setting.errors.front();
  const std::string units = error.units == setting.units_asked
                                ? std::to_string(error.units)
                                : fmt::format("{} of {}", error.units, setting.units_asked);
  if (error.units == 0) {
    row.insert(row.end(), {"null", "null", "-", "-", units});
  } else {
    row.insert(row.end(), {fmt::format("{:.4g}", error.a), fmt::format("{:.4g}", error.b),
                           ratio_text(error.ratio.mean), interval_text(error.ratio), units});
  }
  if (setting.memory.units == 0) {
    row.insert(row.end(), {"null", "null"});
  } else {
    row.insert(row.end(), {percent_text(setting.memory.a), percent_text(setting.memory.b)});
  }
  return row;
}

std::string unit_text(const Json& unit) {
  std::string place = text_of(unit.at("sequence")) + "/" + text_of(unit.at("layer"));
  if (!unit.at("kv_head").is_null()) place += "/" + text_of(unit.at("kv_head"));
  return fmt::format("{}: {:.4g} -> {:.4g}", place, unit.at("a").get<double>(),
                     unit.at("b").get<double>());
}

std::string regressions_text(const Comparison& comparison,
                             const std::map<const SettingComparison*, std::string>& names,
                             std::size_t columns) {
  const auto regressions = comparison.regressions();
  if (regressions.empty()) return "";
  Table table({{"setting", Align::kLeft},
               {"metric", Align::kLeft},
               {"most in unit (sequence/layer/head)", Align::kLeft},
               {"A"},
               {"B"},
               {"ratio"},
               {"95%"}});
  for (const auto& [setting, metric] : regressions) {
    table.add({names.at(setting), metric->metric, unit_text(metric->largest_unit),
               fmt::format("{:.4g}", metric->a), fmt::format("{:.4g}", metric->b),
               ratio_text(metric->ratio.mean), interval_text(metric->ratio)});
  }
  return "\nworse:\n" + table.text(columns);
}

std::string cells_text(const char* title, const std::vector<Json>& cells) {
  if (cells.empty()) return "";
  std::string out = fmt::format("\n{}:\n", title);
  const std::vector<std::string> lines = cell_lines(cells);
  for (std::size_t i = 0; i < std::min(lines.size(), kMaxCells); ++i) {
    out += "  " + lines[i] + "\n";
  }
  if (lines.size() > kMaxCells) {
    out += fmt::format("  and {} more\n", lines.size() - kMaxCells);
  }
  return out;
}

std::string verdict_text(const Comparison& comparison, const ComparedThings& things) {
  std::string out = fmt::format("\n{} {} in both", comparison.pairs, things.name);
  if (comparison.without_number > 0) {
    out += fmt::format(", {} of them without a number in either", comparison.without_number);
  }
  if (!comparison.only_a.empty()) out += fmt::format(", {} in A only", comparison.only_a.size());
  if (!comparison.only_b.empty()) out += fmt::format(", {} in B only", comparison.only_b.size());
  if (comparison.passed()) return out + "; no regression\n";
  return out + fmt::format("; {} regressions, {} numbers lost\n", comparison.regressions().size(),
                           comparison.lost.size());
}

}  // namespace

std::string compare_table(const Comparison& comparison, const CompareRules& rules,
                          std::size_t columns, const ComparedThings& things) {
  const auto names = setting_names(comparison);
  Table table({{"verdict", Align::kLeft},
               {"setting", Align::kLeft},
               {"A", Align::kRight, 0, 5},
               {"B", Align::kRight, 0, 4},
               {"B/A"},
               {"95%", Align::kRight, 0, 6},
               {"units", Align::kRight},
               {"memory A", Align::kRight, 0, 2},
               {"memory B", Align::kRight, 0, 3}});
  for (const SettingComparison& setting : comparison.settings) {
    table.add(setting_row(setting, names.at(&setting)));
  }
  std::string out =
      paragraph(fmt::format("{} of A and B: means over units ({}), and the geometric "
                            "mean of B/A with its 95 % interval, each setting over the units that "
                            "both have; the verdict is on {} metrics and on memory (bytes over "
                            "bytes)",
                            rules.metrics.front(), things.unit, rules.metrics.size()),
                columns);
  out += "\n";
  out += table.text(columns);
  out += regressions_text(comparison, names, columns);
  out += cells_text("lost, a number in A and none in B", comparison.lost);
  out += cells_text("in A only", comparison.only_a);
  out += cells_text("in B only", comparison.only_b);
  return out + verdict_text(comparison, things);
}

}  // namespace kvbench
