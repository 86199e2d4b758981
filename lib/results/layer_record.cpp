#include "results/layer_record.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "results/record.hpp"
#include "results/record_check.hpp"
#include "sweep/layer_records.hpp"

namespace kvbench {
namespace {

Json frame(const Plan& plan, const PlannedLayerRecord& layer, const char* status,
           const std::string& reason) {
  Json record;
  record["id"] = layer.id;
  record["status"] = status;
  if (!reason.empty()) record["reason"] = reason;
  record["key"] = layer_record_key(plan, layer);
  record["label"] = *plan.cells[layer.cells.front()].label;
  return record;
}

// One zero: -0.0 would read as another value. All numbers are finite: what overflowed is none.
Json number(const MetricValue& value) {
  if (!value) return nullptr;
  return *value == 0.0 ? 0.0 : *value;
}

Json errors_json(const LayerErrors& errors) {
  Json out;
  for (std::size_t i = 0; i < layer_numbers().size(); ++i) {
    const LayerNumber& each = layer_numbers()[i];
    Json& place = out[each.metric->name()];
    if (!place.is_null() || errors.numbers[i]) place[each.part] = number(errors.numbers[i]);
  }
  return out;
}

Json memory_json(const LayerResult& result) {
  const double exact = result.exact_bytes;
  return {{"peak_bytes", result.peak_bytes},
          {"exact_bytes", result.exact_bytes},
          {"fraction", result.peak_bytes / exact}};
}

}  // namespace

Json layer_record(const Plan& plan, const PlannedLayerRecord& layer, const LayerResult& result,
                  const std::string& repro) {
  Json record = frame(plan, layer, "ok", "");
  record["errors"] = result.errors ? errors_json(*result.errors) : Json(nullptr);
  record["memory"] = memory_json(result);
  record["counters"] = nullptr;
  if (result.errors) record["counters"] = {{"undefined_rows", result.errors->undefined_rows}};
  if (result.errors && !result.errors->overflows.empty()) {
    record["overflowed"] = overflowed_json(result.errors->overflows);
  }
  if (result.evidence) {
    record["evidence"] = {{"tokens", result.evidence->tokens},
                          {"heads_lost", result.evidence->heads_lost},
                          {"lost", result.evidence->lost}};
  }
  record["timing"] = {{"seconds", result.seconds}};
  record["repro"] = repro;
  return record;
}

Json empty_layer_record(const Plan& plan, const PlannedLayerRecord& layer, const char* status,
                        const std::string& reason, const std::string& repro) {
  Json record = frame(plan, layer, status, reason.empty() ? "unknown reason" : reason);
  for (const char* name : {"errors", "memory", "counters"}) record[name] = nullptr;
  record["timing"] = {{"seconds", 0.0}};
  record["repro"] = repro;
  return record;
}

bool is_layer_record_of(const Json& record, const Plan& plan, const PlannedLayerRecord& layer) {
  const auto key = record.find("key");
  if (key == record.end() || nlohmann::json(*key) != layer_record_key(plan, layer)) return false;
  for (const char* name : {"reason", "repro", "label"}) {
    const auto found = record.find(name);
    if (found != record.end() && !found->is_string()) return false;
  }
  const Json status = record.value("status", Json());
  if (status == "failed" || status == "skipped") return true;
  if (status != "ok") return false;
  const auto part = [&](const char* name) { return record.value(name, Json()); };
  Json evidence = part("evidence");
  if (evidence.is_object()) {
    const Json lost = evidence.value("lost", Json::array());
    const bool all_tokens = lost.is_array() && std::all_of(lost.begin(), lost.end(), [](auto& t) {
                              return t.is_number_unsigned();
                            });
    if (!all_tokens) return false;
    evidence.erase("lost");
  }
  for (const Json& numbers :
       {part("errors"), part("counters"), part("timing"), part("overflowed"), evidence}) {
    if (!numbers_or_nothing(numbers) || is_negative(numbers)) return false;
  }
  return holds_numbers(part("memory")) && !is_negative(part("memory"));
}

const std::vector<std::string>& layer_error_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> out;
    for (const LayerNumber& number : layer_numbers()) {
      out.push_back(number.path.substr(std::string("errors.").size()));
    }
    return out;
  }();
  return paths;
}

const std::vector<std::string>& layer_metric_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> out;
    for (const LayerNumber& number : layer_numbers()) out.push_back(number.path);
    out.emplace_back("evidence.heads_lost");
    return out;
  }();
  return paths;
}

bool is_layer_metric(const std::string& path) {
  const auto& all = layer_metric_paths();
  return std::find(all.begin(), all.end(), path) != all.end();
}

}  // namespace kvbench
