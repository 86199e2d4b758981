#include "output/results_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "output/cell_text.hpp"
#include "output/table.hpp"
#include "output/terminal.hpp"

namespace kvbench {
namespace {

constexpr std::array<double, 3> kFractions = {0.125, 0.25, 0.5};

struct Line {
  std::string name;
  VaryingParams params;
  std::size_t settings = 0;
  std::optional<double> error;
  double memory = 0.0;
  Json best;  // parameters
  std::array<std::optional<double>, kFractions.size()> within;
};

void keep_lower(std::optional<double>& best, double value) {
  if (!best || value < *best) best = value;
}

std::string error_text(const std::optional<double>& error) {
  return error ? fmt::format("{:.4f}", *error) : "-";
}

void add_setting(Line& line, const SettingMeans& setting) {
  ++line.settings;
  Json params = Json::parse(setting.params);
  line.params.add(params);
  const double error = *setting.error;
  const double memory = *setting.memory_fraction;
  for (std::size_t i = 0; i < kFractions.size(); ++i) {
    if (memory <= kFractions[i]) keep_lower(line.within[i], error);
  }
  if (line.error && (error > *line.error || (error == *line.error && memory >= line.memory)))
    return;
  line.error = error;
  line.memory = memory;
  line.best = std::move(params);
}

}  // namespace

std::string results_table(const std::vector<SettingMeans>& settings, std::size_t columns) {
  std::vector<Line> lines;
  std::map<std::string, std::size_t> find;
  for (const SettingMeans& setting : settings) {
    if (!setting.error || !setting.memory_fraction) continue;
    std::string name = label_text(setting.label, setting.algorithm);
    if (setting.tokens) name += fmt::format(", {} tokens", *setting.tokens);
    const auto [place, is_new] = find.try_emplace(name, lines.size());
    if (is_new) lines.emplace_back().name = name;
    add_setting(lines[place->second], setting);
  }
  if (lines.empty()) return "";
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return *a.error < *b.error; });

  Table table({{"algorithm", Align::kLeft, 9},
               {"error", Align::kRight, 8},
               {"memory", Align::kRight, 7, 6},
               {"<= 12.5%", Align::kRight, 8, 2},
               {"<= 25%", Align::kRight, 8, 4},
               {"<= 50%", Align::kRight, 8, 3},
               {"settings", Align::kRight, 8, 1},
               {"best setting", Align::kLeft, 0, 5}});
  for (const Line& line : lines) {
    std::vector<std::string> row = {line.name, error_text(line.error),
                                    fmt::format("{:.1f}%", 100.0 * line.memory)};
    for (const std::optional<double>& error : line.within) row.push_back(error_text(error));
    row.push_back(std::to_string(line.settings));
    row.push_back(params_text(line.params.of(line.best)));
    table.add(std::move(row));
  }
  return paragraph(
             "relative_l2.mean of each algorithm, best first: its best setting, and its best "
             "setting within a fraction of the memory of exact attention (mean over seeds, then "
             "over sequences, layers and KV heads)",
             columns) +
         "\n" + table.text(columns);
}

}  // namespace kvbench
