#include "results/results_file.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "results/read_results.hpp"
#include "results/results_kind.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/portable_path.hpp"

namespace kvbench {
namespace {

// Times of an entry of `groups`.
constexpr std::array<const char*, 3> kSeconds = {"read_seconds", "reference_seconds",
                                                 "metrics_seconds"};

// Identity of an entry of `groups`.
std::string group_identity(const Json& group) {
  Json identity = Json::array();
  for (const char* name : {"dump", "sequence", "layer", "tokens"}) {
    identity.push_back(group.value(name, Json()));
  }
  return to_line(identity);
}

// The seconds that a results file has of an entry of `groups`; null where it has none.
Json seconds_of(const Json& group) {
  if (!group.is_object()) return nullptr;
  const Json timing = group.value("timing", Json());
  if (!timing.is_object() || !timing.value("read_seconds", Json()).is_number()) return nullptr;
  Json seconds;
  for (const char* name : kSeconds) {
    const Json value = timing.value(name, Json());
    seconds[name] = value.is_number() ? value : Json();
  }
  return seconds;
}

// Adds the group timings of the results file at `path`; none where there is no such file, or none
// that can be read, or it is of another plan.
void add_earlier_timing(const std::string& path, const Plan& plan,
                        std::map<std::string, Json>& timing) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) return;
  std::map<std::string, Json> found;
  const auto take_group = [&](const Json& group) {
    if (Json seconds = seconds_of(group); !seconds.is_null()) {
      found.emplace(group_identity(group), std::move(seconds));
    }
  };
  try {
    const Json old = read_results(path, {.group = take_group});
    const Json of = old.value("plan", Json());
    if (!of.is_object() || of.value("hash", Json()) != plan.hash) return;
  } catch (const InputError&) {
    return;
  }
  timing.merge(found);
}

// If several shards worked on one group, the sum of their times.
void add_up(const std::map<std::string, Json>& part, std::map<std::string, Json>& sums) {
  for (const auto& [group, timing] : part) {
    const auto [place, is_new] = sums.emplace(group, timing);
    if (is_new) continue;
    for (auto& [name, seconds] : place->second.items()) {
      const auto more = timing.find(name);
      if (!seconds.is_number() || more == timing.end() || !more->is_number()) continue;
      seconds = seconds.get<double>() + more->get<double>();
    }
  }
}

Json groups_json(const std::string& path, const Plan& plan,
                 const std::vector<std::optional<GroupTiming>>& timing,
                 const std::vector<std::string>& also_timed_by) {
  std::map<std::string, Json> earlier;
  for (const std::string& other : also_timed_by) {
    std::map<std::string, Json> part;
    add_earlier_timing(other, plan, part);
    add_up(part, earlier);
  }
  add_earlier_timing(path, plan, earlier);
  Json no_seconds;
  for (const char* name : kSeconds) no_seconds[name] = nullptr;
  Json groups = Json::array();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const WorkGroup& group = plan.groups[g];
    Json entry = {{"dump", plan.dumps[group.dump].fingerprint},
                  {"sequence", group.sequence},
                  {"layer", group.layer}};
    if (plan.tokens_vary) entry["tokens"] = group.shape.tokens;
    if (timing[g]) {
      entry["timing"] = {{kSeconds[0], timing[g]->read_seconds},
                         {kSeconds[1], timing[g]->reference_seconds},
                         {kSeconds[2], timing[g]->metrics_seconds}};
    } else {
      const auto found = earlier.find(group_identity(entry));
      entry["timing"] = found != earlier.end() ? found->second : no_seconds;
    }
    groups.push_back(std::move(entry));
  }
  return groups;
}

// How results name files: as they are written from the current folder.
class FileNames {
 public:
  explicit FileNames(bool anonymous) : is_anonymous_(anonymous) {}

  std::string path(const std::string& path) const { return text(portable_path(path)); }

  // A text that may name files.
  std::string text(const std::string& text) const {
    return is_anonymous_ ? without_folders(text) : text;
  }

  // Each absolute path of a sweep.
  Json sweep(const Json& value) const {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      return text.starts_with("/") ? Json(path(text)) : value;
    }
    Json out = value;
    if (value.is_structured()) {
      for (auto& part : out) part = sweep(part);
    }
    return out;
  }

  // The text of a record, whose label is that of the plan: it is not part of a cell's identity, and
  // an earlier sweep may have called it otherwise. Changes the record alike.
  std::string record(StoredRecord& stored, const std::string& label) const {
    Json& record = stored.record;
    bool is_as_stored = !is_anonymous_ && !stored.line.empty();
    if (const auto found = record.find("label"); found == record.end() || *found != label) {
      record["label"] = label;
      is_as_stored = false;
    }
    if (is_as_stored) return std::move(stored.line);
    for (const char* name : {"repro", "reason"}) {
      const auto found = record.find(name);
      if (found != record.end() && found->is_string()) *found = text(found->get<std::string>());
    }
    return to_line(record);
  }

  Json runs(const std::vector<Json>& provenance) const {
    Json runs = provenance;
    if (!is_anonymous_) return runs;
    for (Json& run : runs) {
      if (!run.is_object()) continue;
      run["host"] = "";
      run["slurm"] = Json::object();
      if (!run.contains("argv") || !run["argv"].is_array()) continue;
      for (Json& word : run["argv"]) {
        if (word.is_string()) word = without_folders(word.get<std::string>());
      }
    }
    return runs;
  }

 private:
  bool is_anonymous_;
};

Json dumps_json(const Plan& plan, const FileNames& names) {
  Json dumps = Json::array();
  for (const PlannedDump& dump : plan.dumps) {
    dumps.push_back({{"path", names.path(dump.path)},
                     {"fingerprint", dump.fingerprint},
                     {"model", dump.model},
                     {"n_layers", dump.n_layers}});
  }
  return dumps;
}

// Cache files or calibrations.
template <class Content>
Json files_json(const std::vector<std::shared_ptr<const Content>>& files, const FileNames& names) {
  Json list = Json::array();
  for (const auto& file : files) {
    list.push_back({{"path", names.path(file->path)},
                    {"fingerprint", file->fingerprint},
                    {"method", file->method}});
  }
  return list;
}

// One top-level key per line, array elements one per line.
void write_member(AtomicFile& file, const char* key, const Json& value) {
  file.write("  " + to_line(key) + ": ");
  if (!value.is_array() || value.empty()) {
    file.write(to_line(value));
    return;
  }
  file.write("[");
  for (std::size_t i = 0; i < value.size(); ++i) {
    file.write(i == 0 ? "\n    " : ",\n    ");
    file.write(to_line(value[i]));
  }
  file.write("\n  ]");
}

void write_layers(AtomicFile& file, const Plan& plan, const CellRecords& records,
                  const FileNames& names, Summary& summary) {
  file.write(",\n  \"layers\": [");
  const char* separator = "\n    ";
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    if (records.layer_state(l) == CellState::kMissing) continue;
    StoredRecord stored = records.stored_layer(l);
    file.write(std::exchange(separator, ",\n    "));
    file.write(names.record(stored, *plan.cells[plan.layer_records[l].cells.front()].label));
    summary.add_layer(stored.record);
  }
  file.write(std::string_view(separator) == "\n    " ? "]" : "\n  ]");
}

}  // namespace

ResultsOutcome count_results(const CellRecords& records) {
  return {.ok = records.count(CellState::kOk),
          .failed = records.count(CellState::kFailed),
          .skipped = records.count(CellState::kSkipped),
          .missing = records.count(CellState::kMissing),
          .layers = {.ok = records.count_layers(CellState::kOk),
                     .failed = records.count_layers(CellState::kFailed),
                     .skipped = records.count_layers(CellState::kSkipped),
                     .missing = records.count_layers(CellState::kMissing)},
          .settings = {}};
}

ResultsOutcome write_results(const std::string& path, const Plan& plan, const CellRecords& records,
                             const std::vector<std::optional<GroupTiming>>& timing,
                             const std::vector<std::string>& also_timed_by) {
  ResultsOutcome outcome = count_results(records);
  const Json groups = groups_json(path, plan, timing, also_timed_by);
  AtomicFile file(path);
  const auto member = [&](const char* key, const Json& value, const char* before = ",\n") {
    file.write(before);
    write_member(file, key, value);
  };
  member("schema_version", kResultsSchema, "{\n");
  member("kind", kResultsKind);
  member("name", plan.name);
  member("status", outcome.complete() ? "complete" : "incomplete");
  const FileNames names(records.is_anonymous());
  member("config", names.sweep(plan.config));
  member("provenance", names.runs(records.provenance()));
  Json counts = {{"hash", plan.hash},
                 {"cells", plan.cells.size()},
                 {"ok", outcome.ok},
                 {"failed", outcome.failed},
                 {"skipped", outcome.skipped}};
  const bool has_layers = !plan.layer_records.empty();
  if (has_layers) {
    counts["layers"] = {{"records", plan.layer_records.size()},
                        {"ok", outcome.layers.ok},
                        {"failed", outcome.layers.failed},
                        {"skipped", outcome.layers.skipped}};
  }
  member("plan", counts);
  member("dumps", dumps_json(plan, names));
  if (!plan.caches.empty()) member("caches", files_json(plan.caches, names));
  if (!plan.calibrations.empty()) member("calibrations", files_json(plan.calibrations, names));

  Summary summary(plan.tokens_vary, std::filesystem::absolute(path).parent_path().string());
  file.write(",\n  \"cells\": [");
  const char* separator = "\n    ";
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    if (records.state(i) == CellState::kMissing) continue;
    StoredRecord stored = records.stored(i);
    file.write(std::exchange(separator, ",\n    "));
    file.write(names.record(stored, *plan.cells[i].label));
    summary.add(stored.record);
  }
  file.write("\n  ]");
  if (has_layers) write_layers(file, plan, records, names, summary);
  member("groups", groups);
  file.write(",\n  \"summary\": [");
  separator = "\n    ";
  summary.each([&](std::string_view line) {
    file.write(std::exchange(separator, ",\n    "));
    file.write(line);
  });
  file.write(std::string_view(separator) == "\n    " ? "]\n}\n" : "\n  ]\n}\n");
  outcome.settings = summary.compared();
  file.commit();
  return outcome;
}

}  // namespace kvbench
