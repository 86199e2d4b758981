#include "results_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "cell_text.hpp"

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

std::string results_table(const Json& summary) {
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
  std::size_t width = 9;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].params = params_text(varying_params(best[i], params[i]));
    width = std::max(width, lines[i].name.size());
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return *a.error < *b.error; });

  std::string out = fmt::format(
      "relative_l2.mean of each algorithm, best first: its best setting, and its best setting "
      "within a\nfraction of the memory of exact attention (mean over seeds, then over sequences, "
      "layers and KV heads)\n\n{:<{}}  {:>8}  {:>7}  {:>8}  {:>8}  {:>8}  {:>8}  {}\n",
      "algorithm", width, "error", "memory", "<= 12.5%", "<= 25%", "<= 50%", "settings",
      "best setting");
  for (const Line& line : lines) {
    out += fmt::format("{:<{}}  {:>8}  {:>6.1f}%", line.name, width, error_text(line.error),
                       100.0 * line.memory);
    for (const std::optional<double>& error : line.within) {
      out += fmt::format("  {:>8}", error_text(error));
    }
    out +=
        fmt::format("  {:>8}{}{}\n", line.settings, line.params.empty() ? "" : "  ", line.params);
  }
  return out;
}

}  // namespace kvbench
