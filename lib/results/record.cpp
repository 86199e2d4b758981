#include "results/record.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "metrics/metric_table.hpp"
#include "sweep/cell_identity.hpp"

namespace kvbench {
namespace {

// Turns optional numbers into JSON and remembers the first that is not finite.
class FiniteNumbers {
 public:
  Json write(const std::string& path, const std::optional<double>& value) {
    if (!value) return nullptr;
    if (!std::isfinite(*value)) {
      if (error_.empty())
        error_ = path + (std::isnan(*value) ? " is not a number" : " is infinite");
      return nullptr;
    }
    // One zero: -0.0 would read as another value.
    return *value == 0.0 ? 0.0 : *value;
  }

  const std::string& error() const { return error_; }

 private:
  std::string error_;
};

const std::pair<const char*, Index MemoryReport::*> kMemoryFields[] = {
    {"tokens", &MemoryReport::tokens},
    {"tokens_peak", &MemoryReport::tokens_peak},
    {"distinct_tokens", &MemoryReport::distinct_tokens},
    {"vectors", &MemoryReport::vectors},
    {"numbers", &MemoryReport::numbers},
    {"bookkeeping", &MemoryReport::bookkeeping},
    {"bytes", &MemoryReport::bytes},
    {"peak_bytes", &MemoryReport::peak_bytes},
    {"exact_bytes", &MemoryReport::exact_bytes},
    {"lookup_bytes", &MemoryReport::lookup_bytes},
    {"shared_bytes", &MemoryReport::shared_bytes},
};

// There where bytes are what the method says it stores.
constexpr const char* kDeclared = "declared";

// Next to those of the table of metrics, which follow kCountersOfAlgorithm.
const std::pair<const char*, Index Counters::*> kCountersOfAlgorithm[] = {
    {"clamped", &Counters::clamped},
};
constexpr const char* kUndefinedRows = "undefined_rows";

constexpr const char* kKappa = "kappa";
constexpr const char* kLast = "last";
const std::pair<const char*, CellMetrics TrivialAnswers::*> kTrivialAnswers[] = {
    {"zero", &TrivialAnswers::zero},
    {"mean_value", &TrivialAnswers::mean_value},
};

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& field : table) names.emplace_back(field.first);
  return names;
}

// Some of metric_numbers(), by metric: a number, an object of its numbers, or null.
Json metrics_json(const std::vector<std::size_t>& indices, const CellMetrics& metrics,
                  FiniteNumbers& numbers) {
  Json out;
  for (const std::size_t i : indices) {
    const MetricNumber& number = metric_numbers()[i];
    Json& place = out[number.metric->name()];
    if (number.part.empty()) {
      place = numbers.write(number.path, metrics.at(i));
    } else if (!place.is_null() || metrics.at(i)) {  // a mean comes first and decides
      place[number.part] = numbers.write(number.path, metrics.at(i));
    }
  }
  return out;
}

// The metrics of one section.
Json metrics_json(const std::string& section, const CellMetrics& metrics, FiniteNumbers& numbers) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < metric_numbers().size(); ++i) {
    if (metric_numbers()[i].metric->section() == section) indices.push_back(i);
  }
  return metrics_json(indices, metrics, numbers);
}

Json trivial_json(const TrivialAnswers* trivial, FiniteNumbers& numbers) {
  if (trivial == nullptr) return nullptr;
  Json kappa;
  for (const DistributionNumber& each : kDistributionNumbers) {
    if (trivial->kappa) kappa[each.name] = numbers.write(kKappa, (*trivial->kappa).*each.number);
  }
  if (trivial->kappa) kappa[kLast] = numbers.write(kKappa, trivial->kappa_last);
  Json out;
  out[kKappa] = std::move(kappa);
  for (const auto& [name, answer] : kTrivialAnswers) {
    out[name] = metrics_json(answer_numbers(), trivial->*answer, numbers);
  }
  return out;
}

Json counters_json(const CellResult& result, FiniteNumbers& numbers) {
  Json out;
  for (const auto& [name, count] : kCountersOfAlgorithm) out[name] = result.counters.*count;
  const Json counted = metrics_json("counters", result.metrics, numbers);
  for (const auto& [name, value] : counted.items()) {
    if (!value.is_null()) out[name] = static_cast<Index>(value.get<double>());
  }
  out[kUndefinedRows] = result.undefined_rows;
  return out;
}

// The derived numbers with those that were solved for a memory.
Json derived_json(const PlannedCell& cell, const Derived& derived) {
  Json out = Json::object();
  for (const auto& [name, value] : cell.params->entries()) {
    const auto* memory = std::get_if<MemoryBudget>(&value);
    if (memory != nullptr && memory->is_solved()) out[name] = memory->solved;
  }
  for (const auto& [name, value] : derived) {
    std::visit(
        [&out, &name = name](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>) {
            out[name] = std::isfinite(v) ? Json(v == 0.0 ? 0.0 : v) : Json(nullptr);
          } else {
            out[name] = v;
          }
        },
        value);
  }
  return out;
}

Json clusters_json(const std::optional<Clusters>& clusters) {
  if (!clusters) return nullptr;
  Json trajectory = Json::array();
  for (const auto& [row, count] : clusters->trajectory) trajectory.push_back({row, count});
  return {{"final", clusters->final_count}, {"trajectory", std::move(trajectory)}};
}

Json memory_json(const MemoryReport& memory, FiniteNumbers& numbers) {
  Json out;
  for (const auto& [name, field] : kMemoryFields) out[name] = memory.*field;
  out["fraction"] = numbers.write("memory.fraction", memory.fraction);
  if (memory.declared) out[kDeclared] = true;
  return out;
}

Json traffic_json(const TrafficReport& traffic) {
  Json out;
  out["tokens_read"] = {{"mean", traffic.tokens_read_mean}, {"max", traffic.tokens_read_max}};
  out["bytes_read"] = {{"mean", traffic.bytes_read_mean}, {"max", traffic.bytes_read_max}};
  out["fraction"] = traffic.fraction;
  out["density"] = traffic.density;
  return out;
}

Json evidence_json(const EvidenceReport& evidence, FiniteNumbers& numbers) {
  Json out = {{"tokens", evidence.tokens}, {"rows", evidence.rows}};
  out["held"] = numbers.write("evidence.held", evidence.held_share);
  out["mass"] = {
      {"exact", numbers.write("evidence.mass.exact", evidence.mass_exact)},
      {"approximate", numbers.write("evidence.mass.approximate", evidence.mass_approximate)}};
  return out;
}

Json frame(const Plan& plan, const PlannedCell& cell, const char* status,
           const std::string& reason) {
  Json record;
  record["id"] = cell.id.text();
  record["status"] = status;
  if (!reason.empty()) record["reason"] = reason;
  record["key"] = cell_key(plan, cell);
  record["label"] = *cell.label;
  return record;
}

Json empty_record(const Plan& plan, const PlannedCell& cell, const char* status,
                  const std::string& reason, const Derived& derived, double seconds,
                  const std::string& repro) {
  Json record = frame(plan, cell, status, reason.empty() ? "unknown reason" : reason);
  record["derived"] = derived_json(cell, derived);
  for (const char* name :
       {"errors", "trivial", "mass", "clusters", "memory", "traffic", "counters"}) {
    record[name] = nullptr;
  }
  record["timing"] = {{"seconds", seconds}};
  record["repro"] = repro;
  return record;
}

}  // namespace

Json cell_record(const Plan& plan, const PlannedCell& cell, const CellResult& result,
                 const std::string& repro) {
  if (result.failed) {
    return empty_record(plan, cell, "failed", result.reason, result.derived, result.seconds, repro);
  }
  FiniteNumbers numbers;
  Json errors = metrics_json("errors", result.metrics, numbers);
  Json trivial = trivial_json(result.trivial.get(), numbers);
  Json mass = metrics_json("mass", result.metrics, numbers);
  Json counters = counters_json(result, numbers);
  Json memory = memory_json(result.memory, numbers);
  Json evidence = result.evidence ? evidence_json(*result.evidence, numbers) : Json(nullptr);
  if (!numbers.error().empty()) {
    return empty_record(plan, cell, "failed", numbers.error(), result.derived, result.seconds,
                        repro);
  }
  Json record = frame(plan, cell, "ok", "");
  record["derived"] = derived_json(cell, result.derived);
  record["errors"] = std::move(errors);
  record["trivial"] = std::move(trivial);
  record["mass"] = std::move(mass);
  record["clusters"] = clusters_json(result.clusters);
  record["memory"] = std::move(memory);
  record["traffic"] = traffic_json(result.traffic);
  if (result.evidence) record["evidence"] = std::move(evidence);
  record["counters"] = std::move(counters);
  if (!result.overflows.empty()) record["overflowed"] = overflowed_json(result.overflows);
  record["timing"] = {{"seconds", result.seconds}};
  record["repro"] = repro;
  return record;
}

Json overflowed_json(const std::vector<Overflow>& overflows) {
  Json out;
  for (const Overflow& each : overflows) out[each.path] = each.rows;
  return out;
}

Json failed_record(const Plan& plan, const PlannedCell& cell, const std::string& reason,
                   const std::string& repro) {
  return empty_record(plan, cell, "failed", reason, {}, 0.0, repro);
}

Json skipped_record(const Plan& plan, const PlannedCell& cell, const std::string& repro) {
  return empty_record(plan, cell, "skipped", cell.skip_reason.value_or(""), {}, 0.0, repro);
}

const std::vector<std::string>& error_paths() {
  static const std::vector<std::string> paths = [] {
    const std::string prefix = "errors.";
    std::vector<std::string> out;
    for (const MetricNumber& number : metric_numbers()) {
      if (number.path.starts_with(prefix)) out.push_back(number.path.substr(prefix.size()));
    }
    return out;
  }();
  return paths;
}

const std::vector<std::string>& trivial_answer_names() {
  static const std::vector<std::string> names = names_of(kTrivialAnswers);
  return names;
}

const std::vector<std::string>& kappa_parts() {
  static const std::vector<std::string> parts = [] {
    std::vector<std::string> out;
    for (const DistributionNumber& each : kDistributionNumbers) out.emplace_back(each.name);
    out.emplace_back(kLast);
    return out;
  }();
  return parts;
}

const std::vector<std::string>& trivial_paths() {
  static const std::vector<std::string> paths = [] {
    std::vector<std::string> out;
    for (const std::string& part : kappa_parts()) out.push_back(kKappa + ("." + part));
    const std::size_t section = std::string("errors.").size();
    for (const std::string& answer : trivial_answer_names()) {
      for (const std::size_t i : answer_numbers()) {
        out.push_back(answer + "." + metric_numbers()[i].path.substr(section));
      }
    }
    return out;
  }();
  return paths;
}

const std::vector<std::string>& evidence_paths() {
  static const std::vector<std::string> paths = {"tokens", "rows", "held", "mass.exact",
                                                 "mass.approximate"};
  return paths;
}

const std::vector<std::string>& memory_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = names_of(kMemoryFields);
    out.emplace_back("fraction");
    return out;
  }();
  return names;
}

const std::vector<std::string>& traffic_paths() {
  static const std::vector<std::string> paths = {"tokens_read.mean", "tokens_read.max",
                                                 "bytes_read.mean",  "bytes_read.max",
                                                 "fraction",         "density"};
  return paths;
}

const std::vector<std::string>& counter_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = names_of(kCountersOfAlgorithm);
    for (const Metric& metric : all_metrics()) {
      if (metric.section() == "counters") out.push_back(metric.name());
    }
    out.emplace_back(kUndefinedRows);
    return out;
  }();
  return names;
}

bool counter_is_optional(const std::string& name) {
  const auto& metrics = all_metrics();
  return std::any_of(metrics.begin(), metrics.end(), [&](const Metric& metric) {
    return metric.section() == "counters" && metric.name() == name && metric.has_meaning != nullptr;
  });
}

}  // namespace kvbench
