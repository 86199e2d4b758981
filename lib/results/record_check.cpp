#include "results/record_check.hpp"

#include <algorithm>
#include <string>

#include "metrics/metric_table.hpp"
#include "results/record.hpp"
#include "sweep/cell_identity.hpp"

namespace kvbench {
namespace {

bool is_number_or_null(const Json& value) { return value.is_number() || value.is_null(); }

// Later versions may write metrics that this one does not know.
bool can_be_negative(const std::string& name) {
  const auto& metrics = all_metrics();
  const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const Metric& metric) {
    return metric.path == "errors." + name;
  });
  return found == metrics.end() || found->can_be_negative;
}

bool errors_are_sound(const Json& errors) {
  if (!holds_numbers(errors)) return false;
  const auto items = errors.items();
  return std::none_of(items.begin(), items.end(), [](const auto& item) {
    return !can_be_negative(item.key()) && is_negative(item.value());
  });
}

bool is_text_or_absent(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() || found->is_string();
}

}  // namespace

bool holds_numbers(const Json& value) {
  return value.is_object() && std::all_of(value.begin(), value.end(), [](const Json& member) {
           return is_number_or_null(member) || holds_numbers(member);
         });
}

bool numbers_or_nothing(const Json& value) { return value.is_null() || holds_numbers(value); }

bool is_negative(const Json& value) {
  if (value.is_number()) return value.get<double>() < 0.0;
  return value.is_object() && std::any_of(value.begin(), value.end(), is_negative);
}

bool is_record_of(const Json& record, const Plan& plan, const PlannedCell& cell) {
  const Json status = record.value("status", Json());
  const auto key = record.find("key");
  if (key == record.end() || nlohmann::json(*key) != cell_key(plan, cell)) return false;
  for (const char* name : {"reason", "repro", "label"}) {
    if (!is_text_or_absent(record, name)) return false;
  }
  if (status == "failed" || status == "skipped") return true;
  if (status != "ok") return false;
  const auto part = [&](const char* name) { return record.value(name, Json()); };
  const Json derived = part("derived");
  const Json clusters = part("clusters");
  Json memory = part("memory");
  if (memory.is_object() && memory.value("declared", Json()).is_boolean()) memory.erase("declared");
  return errors_are_sound(part("errors")) && holds_numbers(memory) && !is_negative(memory) &&
         numbers_or_nothing(part("evidence")) && numbers_or_nothing(part("traffic")) &&
         !is_negative(part("traffic")) && numbers_or_nothing(part("mass")) &&
         numbers_or_nothing(part("trivial")) && !is_negative(part("trivial")) &&
         numbers_or_nothing(part("counters")) && numbers_or_nothing(part("timing")) &&
         numbers_or_nothing(part("overflowed")) && (derived.is_object() || derived.is_null()) &&
         (clusters.is_object() || clusters.is_null());
}

}  // namespace kvbench
