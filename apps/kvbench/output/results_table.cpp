#include "output/results_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
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
  std::size_t settings = 0;
  std::optional<double> error;
  double memory = 0.0;
  std::string params;
  std::array<std::optional<double>, kFractions.size()> within;
};

void keep_lower(std::optional<double>& best, double value) {
  if (!best || value < *best) best = value;
}

std::string error_text(const std::optional<double>& error) {
  return error ? fmt::format("{:.4f}", *error) : "-";
}

}  // namespace

std::string results_table(const Json& summary, std::size_t columns) {
  std::vector<Line> lines;
  std::vector<std::vector<const Json*>> params;
  std::vector<Json> best;
  for (const Json& entry : summary) {
    if (!entry.at("layer").is_null()) continue;
    const Json& metric = entry.at("errors").at("relative_l2.mean");
    const Json& fraction = entry.at("memory").at("fraction");
    if (metric.is_null() || fraction.is_null()) continue;
    const auto label = entry.at("label").get<std::string>();
    const auto algorithm = entry.at("algorithm").get<std::string>();
    const std::string name = label_text(label, algorithm);
    auto place = static_cast<std::size_t>(
        std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.name == name; }) -
        lines.begin());
    if (place == lines.size()) {
      lines.emplace_back();
      lines.back().name = name;
      params.emplace_back();
      best.emplace_back();
    }
    Line& line = lines[place];
    ++line.settings;
    params[place].push_back(&entry.at("params"));
    const double error = metric.at("mean").get<double>();
    const double memory = fraction.get<double>();
    if (!line.error || error < *line.error || (error == *line.error && memory < line.memory)) {
      line.error = error;
      line.memory = memory;
      best[place] = entry.at("params");
    }
    for (std::size_t i = 0; i < kFractions.size(); ++i) {
      if (memory <= kFractions[i]) keep_lower(line.within[i], error);
    }
  }
  if (lines.empty()) return "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].params = params_text(varying_params(best[i], params[i]));
  }
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
    row.push_back(line.params);
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
