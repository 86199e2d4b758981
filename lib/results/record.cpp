#include "results/record.hpp"

#include <cmath>
#include <optional>
#include <utility>

namespace kvbench {
namespace {

// Turns optional numbers into JSON and remembers the first that is not finite.
class FiniteNumbers {
 public:
  Json write(const std::string& path, const std::optional<double>& value) {
    if (!value) return nullptr;
    if (!std::isfinite(*value)) {
      if (fault_.empty())
        fault_ = path + (std::isnan(*value) ? " is not a number" : " is infinite");
      return nullptr;
    }
    // One zero: -0.0 would read as another value.
    return *value == 0.0 ? 0.0 : *value;
  }

  Json write(const std::string& path, const std::optional<Distribution>& values) {
    if (!values) return nullptr;
    Json out;
    for (const auto& [name, number] : kFields)
      out[name] = write(path + "." + name, (*values).*number);
    return out;
  }

  const std::string& fault() const { return fault_; }

  static constexpr std::pair<const char*, double Distribution::*> kFields[] = {
      {"mean", &Distribution::mean}, {"median", &Distribution::median}, {"p90", &Distribution::p90},
      {"p99", &Distribution::p99},   {"max", &Distribution::max},
  };

 private:
  std::string fault_;
};

// A row of the errors table: a single number, or a distribution with, for some, its last row.
struct ErrorField {
  const char* name;
  std::optional<double> CellErrors::* number = nullptr;
  std::optional<Distribution> CellErrors::* values = nullptr;
  std::optional<double> CellErrors::* last = nullptr;
};

const ErrorField kErrorFields[] = {
    {.name = "relative_frobenius_error", .number = &CellErrors::relative_frobenius_error},
    {.name = "relative_spectral_error", .number = &CellErrors::relative_spectral_error},
    {.name = "relative_max_error", .number = &CellErrors::relative_max_error},
    {.name = "relative_l2", .values = &CellErrors::relative_l2},
    {.name = "relative_l2_posclamp_mean", .number = &CellErrors::relative_l2_posclamp_mean},
    {.name = "epsilon_spectral",
     .values = &CellErrors::epsilon_spectral,
     .last = &CellErrors::epsilon_spectral_last},
    {.name = "epsilon_frobenius",
     .values = &CellErrors::epsilon_frobenius,
     .last = &CellErrors::epsilon_frobenius_last},
    {.name = "numerator_error", .values = &CellErrors::numerator_error},
    {.name = "normalizer_error", .values = &CellErrors::normalizer_error},
    {.name = "cosine_distance", .values = &CellErrors::cosine_distance},
    {.name = "kl_divergence", .values = &CellErrors::kl_divergence},
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
};

const std::pair<const char*, std::optional<Distribution> CellMass::*> kMassFields[] = {
    {"kept", &CellMass::kept},
    {"numerator", &CellMass::numerator},
    {"denominator", &CellMass::denominator},
};

const std::pair<const char*, Index (*)(const CellResult&)> kCounterFields[] = {
    {"fail", [](const CellResult& result) { return result.counters.fail; }},
    {"clamped", [](const CellResult& result) { return result.counters.clamped; }},
    {"empty_denominator", [](const CellResult& result) { return result.empty_denominator; }},
    {"undefined_rows", [](const CellResult& result) { return result.undefined_rows; }},
};

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& field : table) names.emplace_back(field.first);
  return names;
}

Json errors_json(const CellErrors& errors, FiniteNumbers& numbers) {
  Json out;
  for (const ErrorField& field : kErrorFields) {
    const std::string path = std::string("errors.") + field.name;
    if (field.number != nullptr) {
      out[field.name] = numbers.write(path, errors.*field.number);
      continue;
    }
    Json values = numbers.write(path, errors.*field.values);
    if (field.last != nullptr && !values.is_null()) {
      values["last"] = numbers.write(path + ".last", errors.*field.last);
    }
    out[field.name] = std::move(values);
  }
  return out;
}

Json derived_json(const Derived& derived) {
  Json out = Json::object();
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
  return out;
}

Json frame(const Plan& plan, const PlannedCell& cell, const char* status,
           const std::string& reason) {
  Json record;
  record["id"] = cell.id;
  record["status"] = status;
  if (!reason.empty()) record["reason"] = reason;
  record["key"] = cell_key(plan, cell);
  record["label"] = cell.label;
  return record;
}

Json empty_record(const Plan& plan, const PlannedCell& cell, const char* status,
                  const std::string& reason, const Derived& derived, double seconds,
                  const std::string& repro) {
  Json record = frame(plan, cell, status, reason.empty() ? "unknown reason" : reason);
  record["derived"] = derived_json(derived);
  for (const char* name : {"errors", "mass", "clusters", "memory", "counters"}) {
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
  Json errors = errors_json(result.errors, numbers);
  Json mass;
  for (const auto& [name, field] : kMassFields) {
    mass[name] = numbers.write(std::string("mass.") + name, result.mass.*field);
  }
  Json memory = memory_json(result.memory, numbers);
  if (!numbers.fault().empty()) {
    return empty_record(plan, cell, "failed", numbers.fault(), result.derived, result.seconds,
                        repro);
  }
  Json record = frame(plan, cell, "ok", "");
  record["derived"] = derived_json(result.derived);
  record["errors"] = std::move(errors);
  record["mass"] = std::move(mass);
  record["clusters"] = clusters_json(result.clusters);
  record["memory"] = std::move(memory);
  for (const auto& [name, count] : kCounterFields) record["counters"][name] = count(result);
  record["timing"] = {{"seconds", result.seconds}};
  record["repro"] = repro;
  return record;
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
    std::vector<std::string> out;
    for (const ErrorField& field : kErrorFields) {
      if (field.number != nullptr) {
        out.emplace_back(field.name);
        continue;
      }
      const std::string prefix = std::string(field.name) + ".";
      for (const auto& [name, number] : FiniteNumbers::kFields) out.push_back(prefix + name);
      if (field.last != nullptr) out.push_back(prefix + "last");
    }
    return out;
  }();
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

const std::vector<std::string>& mass_names() {
  static const std::vector<std::string> names = names_of(kMassFields);
  return names;
}

const std::vector<std::string>& distribution_names() {
  static const std::vector<std::string> names = names_of(FiniteNumbers::kFields);
  return names;
}

const std::vector<std::string>& counter_names() {
  static const std::vector<std::string> names = names_of(kCounterFields);
  return names;
}

}  // namespace kvbench
