#include "check/baseline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "json/file_kind.hpp"
#include "results/results_file.hpp"
#include "results/results_kind.hpp"
#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

struct Baseline {
  std::string path;
  std::vector<const Bound*> bounds;
  RecordStore cells;   // as lines of JSON
  RecordStore layers;  // records of whole layers
};

std::vector<Baseline> named_baselines(const BoundsFile& bounds) {
  std::vector<Baseline> all;
  for (const Bound& bound : bounds.bounds) {
    const auto* rule = std::get_if<BaselineRule>(&bound.rule);
    if (rule == nullptr) continue;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const Baseline& b) { return b.path == rule->found; });
    if (found == all.end())
      found = all.insert(all.end(), Baseline{rule->found, {}, RecordStore(), RecordStore()});
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
  const auto write_list = [&](const RecordStore& records) {
    RecordStore::Reader reader(records);
    for (std::size_t i = 0; i < records.size(); ++i) {
      file.write(i == 0 ? "\n    " : ",\n    ");
      file.write(reader.at(i));
    }
    file.write(records.size() == 0 ? "]" : "\n  ]");
  };
  write_list(baseline.cells);
  if (baseline.layers.size() > 0) {
    file.write(",\n  \"layers\": [");
    write_list(baseline.layers);
  }
  file.write("\n}\n");
  file.commit();
}

}  // namespace

std::vector<std::pair<std::string, Index>> write_baselines(const BoundsFile& bounds,
                                                           const CheckedResults& results) {
  results.require_distinct();
  const std::string& path = results.path();
  std::vector<Baseline> baselines = named_baselines(bounds);
  ErrorList errors;
  if (baselines.empty()) errors.add(bounds.path + ": no bound names a baseline to write");
  if (results.rest().value("status", Json()) != "complete") {
    errors.add(path + ": is incomplete; finish the run before it becomes a baseline");
  }
  for (Baseline& baseline : baselines) {
    const auto take = [&](bool of_layers, RecordStore& into) {
      const CheckedRecords& records = results.records(of_layers);
      CheckedRecords::Reader reader(records);
      for (std::size_t i = 0; i < records.size(); ++i) {
        Json kept = reduced(reader.at(i), of_layers, baseline.bounds);
        if (kept.is_null()) continue;
        if (kept["status"] == "failed") {
          errors.add(fmt::format("{}: {} {} failed and cannot be part of a baseline", path,
                                 of_layers ? "layer record" : "cell", to_line(kept["id"])));
        }
        into.add(to_line(kept));
      }
    };
    take(false, baseline.cells);
    take(true, baseline.layers);
    if (baseline.cells.size() + baseline.layers.size() == 0) {
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
    std::error_code ignored;
    if (std::filesystem::equivalent(baseline.path, path, ignored)) {
      errors.add(
          fmt::format("{}: {}/baseline: {} holds the results themselves, which the baseline "
                      "would replace; name another file",
                      bounds.path, baseline.bounds.front()->pointer, baseline.path));
    }
    errors.gather([&] { refuse_to_replace(baseline.path, WrittenKind::kResults); });
  }
  errors.throw_if_any();
  std::vector<std::pair<std::string, Index>> written;
  for (const Baseline& baseline : baselines) {
    write(baseline, results.rest().value("name", Json("")));
    written.emplace_back(baseline.path,
                         static_cast<Index>(baseline.cells.size() + baseline.layers.size()));
  }
  return written;
}

}  // namespace kvbench
