#include "results/cell_metric.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "metrics/metric_table.hpp"
#include "results/layer_record.hpp"
#include "results/record.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

constexpr const char* kDerived = "derived.";

bool is_derived(const std::string& path) {
  return path.rfind(kDerived, 0) == 0 && path.size() > std::string(kDerived).size();
}

}  // namespace

const std::vector<std::string>& metric_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> all;
    for (const MetricNumber& number : metric_numbers()) {
      if (number.metric->section() != "counters") all.push_back(number.path);
    }
    for (const std::string& path : trivial_paths()) all.push_back("trivial." + path);
    for (const std::string& name : memory_names()) all.push_back("memory." + name);
    for (const std::string& path : traffic_paths()) all.push_back("traffic." + path);
    for (const std::string& path : evidence_paths()) all.push_back("evidence." + path);
    for (const std::string& name : counter_names()) all.push_back("counters." + name);
    all.insert(all.end(), layer_metric_paths().begin(), layer_metric_paths().end());
    all.insert(all.end(), {"clusters.final", "timing.seconds"});
    return all;
  }();
  return paths;
}

std::optional<std::string> metric_error(const std::string& path) {
  const auto& known = metric_paths();
  if (is_derived(path) || std::find(known.begin(), known.end(), path) != known.end()) {
    return std::nullopt;
  }
  std::vector<std::string> parts;
  for (const std::string& each : known) {
    if (each == "errors." + path) return "paths start at the cell; did you mean " + each + "?";
    if (each.rfind(path + ".", 0) == 0) parts.push_back(each);
  }
  if (!parts.empty()) {
    return fmt::format("{} is a distribution, not a number; use one of {}", path,
                       fmt::join(parts, ", "));
  }
  const std::string near = did_you_mean(path, known);
  return fmt::format("unknown metric {}{}", path,
                     near.empty() ? "; see kvbench list metrics, and memory, traffic, evidence, "
                                    "counters, clusters.final and derived in a cell"
                                  : near);
}

const std::vector<std::string>& trivial_metric_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> all;
    for (const std::size_t i : answer_numbers()) all.push_back(metric_numbers()[i].path);
    return all;
  }();
  return paths;
}

std::vector<Json::json_pointer> trivial_places(const std::string& path) {
  std::vector<Json::json_pointer> places;
  for (const std::string& answer : trivial_answer_names()) {
    places.push_back(metric_place("trivial." + answer + path.substr(path.find('.'))));
  }
  return places;
}

bool less_is_better(const std::string& path) {
  for (const MetricNumber& number : metric_numbers()) {
    if (number.path == path) return number.metric->less_is_better;
  }
  for (const LayerNumber& number : layer_numbers()) {
    if (number.path == path) return number.metric->less_is_better;
  }
  if (path == "evidence.heads_lost") return true;
  return path.starts_with("memory.") || path.starts_with("traffic.") ||
         path.starts_with("counters.") || path == "timing.seconds";
}

Json::json_pointer metric_place(const std::string& path) {
  if (is_derived(path)) {
    return Json::json_pointer("/derived") / path.substr(std::string(kDerived).size());
  }
  std::string place = "/" + path;
  std::replace(place.begin(), place.end(), '.', '/');
  return Json::json_pointer(place);
}

std::optional<std::string> cell_metric_error(const std::string& path) {
  if (!is_layer_metric(path)) return metric_error(path);
  return path + " is of whole layers; name a number of cells, `kvbench list metrics` has them";
}

}  // namespace kvbench
