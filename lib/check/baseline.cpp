#include "check/baseline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "check/check.hpp"
#include "core/error.hpp"
#include "core/file.hpp"
#include "json/file_kind.hpp"
#include "results/results_file.hpp"

namespace kvbench {
namespace {

struct Baseline {
  std::string path;
  std::vector<const Bound*> bounds;
  std::vector<Json> cells;
  std::vector<Json> layers;  // records of whole layers
};

std::vector<Baseline> named_baselines(const BoundsFile& bounds) {
  std::vector<Baseline> all;
  for (const Bound& bound : bounds.bounds) {
    const auto* rule = std::get_if<BaselineRule>(&bound.rule);
    if (rule == nullptr) continue;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const Baseline& b) { return b.path == rule->found; });
    if (found == all.end()) found = all.insert(all.end(), Baseline{rule->found, {}, {}, {}});
    found->bounds.push_back(&bound);
  }
  return all;
}

// The parts of a cell that the bounds which select it look at; null if none does.
Json reduced(const Json& cell, bool of_layers, const std::vector<const Bound*>& bounds) {
  Json out;
  for (const Bound* bound : bounds) {
    if (bound->of_layers != of_layers || !bound->where.matches(cell)) continue;
    if (out.is_null()) {
      for (const char* name : {"id", "status", "key", "label"})
        out[name] = cell.value(name, Json());
    }
    const Json* value = value_at(cell, bound->metric_place);
    if (value != nullptr) out[bound->metric_place] = *value;
  }
  return out;
}

void write(const Baseline& baseline, const Json& name) {
  AtomicFile file(baseline.path);
  file.write(
      fmt::format("{{\n  \"schema_version\": \"{}\",\n  \"kind\": \"{}\",\n  \"name\": {},\n"
                  "  \"status\": \"complete\",\n  \"cells\": [",
                  kResultsSchema, kResultsKind, to_line(name)));
  const auto write_list = [&](const std::vector<Json>& records) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      file.write((i == 0 ? "\n    " : ",\n    ") + to_line(records[i]));
    }
    file.write(records.empty() ? "]" : "\n  ]");
  };
  write_list(baseline.cells);
  if (!baseline.layers.empty()) {
    file.write(",\n  \"layers\": [");
    write_list(baseline.layers);
  }
  file.write("\n}\n");
  file.commit();
}

}  // namespace

std::vector<std::pair<std::string, Index>> write_baselines(const BoundsFile& bounds,
                                                           const Json& results,
                                                           const std::string& path) {
  require_cells(results, path);
  std::vector<Baseline> baselines = named_baselines(bounds);
  ErrorList errors;
  if (baselines.empty()) errors.add(bounds.path + ": no bound names a baseline to write");
  if (results.value("status", Json()) != "complete") {
    errors.add(path + ": is incomplete; finish the run before it becomes a baseline");
  }
  for (Baseline& baseline : baselines) {
    const auto take = [&](const Json& records, bool of_layers, std::vector<Json>& into) {
      for (const Json& record : records) {
        Json kept = reduced(record, of_layers, baseline.bounds);
        if (kept.is_null()) continue;
        if (kept["status"] == "failed") {
          errors.add(fmt::format("{}: {} {} failed and cannot be part of a baseline", path,
                                 of_layers ? "layer record" : "cell", to_line(kept["id"])));
        }
        into.push_back(std::move(kept));
      }
    };
    take(results.at("cells"), false, baseline.cells);
    take(results.value("layers", Json::array()), true, baseline.layers);
    if (baseline.cells.empty() && baseline.layers.empty()) {
      errors.add(fmt::format("{}: {}/where selects no cell of {}", bounds.path,
                             baseline.bounds.front()->pointer, path));
    }
    const auto folder = std::filesystem::path(baseline.path).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      errors.add(fmt::format("{}: {}/baseline: there is no folder {}; make it first", bounds.path,
                             baseline.bounds.front()->pointer, folder.string()));
    }
  }
  for (const Baseline& baseline : baselines) {
    errors.gather([&] { refuse_to_replace(baseline.path, WrittenKind::kResults); });
  }
  errors.throw_if_any();
  std::vector<std::pair<std::string, Index>> written;
  for (const Baseline& baseline : baselines) {
    write(baseline, results.value("name", Json("")));
    written.emplace_back(baseline.path,
                         static_cast<Index>(baseline.cells.size() + baseline.layers.size()));
  }
  return written;
}

}  // namespace kvbench
