#include "results/results_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "json/bounded_input.hpp"
#include "json/file_kind.hpp"
#include "json/input_file.hpp"
#include "json/nesting.hpp"

namespace kvbench {
namespace {

constexpr const char* kWanted = "name a results.json";
// What a results file has below its root; what else a stranger's holds is not kept.
constexpr std::array<std::string_view, 9> kMembers = {
    "config", "provenance", "plan", "dumps", "caches", "cells", "layers", "groups", "summary"};
constexpr int kMostNames = 1024;  // of an object
constexpr std::size_t kLongestText = std::size_t{1} << 20;
// Values of members that grow with runs and files, not with cells; all of them are in memory.
constexpr std::array<std::string_view, 4> kFew = {"provenance", "plan", "dumps", "caches"};
constexpr std::size_t kMostOfFew = 400'000;
constexpr std::size_t kMostOfOthers = 4'000'000;  // of config and groups: what a sweep may have
// Objects and arrays of one of those members that lie in one array: the parser looks through all
// of them at the end of each.
constexpr int kMostHeld = 10'000;

// Of an entry of `groups`.
std::string group_identity(const Json& group) {
  Json identity = Json::array();
  for (const char* name : {"dump", "sequence", "layer", "tokens"}) {
    identity.push_back(group.value(name, Json()));
  }
  return to_line(identity);
}

// Adds the group timings of the results file at `path`, records and summary left aside; none where
// there is no such file or it is of another plan.
void add_earlier_timing(const std::string& path, const Plan& plan,
                        std::map<std::string, Json>& timing) {
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) return;
  std::ifstream in(path);
  std::string last_key;
  const Json::parser_callback_t drop_bulk = [&](int depth, Json::parse_event_t event,
                                                Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key) last_key = parsed.get<std::string>();
    if (depth > kDeepestRecord) return false;
    return depth < 2 || (last_key != "cells" && last_key != "layers" && last_key != "summary");
  };
  const Json old = Json::parse(in, drop_bulk, false);
  if (!old.is_object() || !old.contains("plan") || !old["plan"].is_object() ||
      old["plan"].value("hash", Json()) != plan.hash || !old.contains("groups") ||
      !old["groups"].is_array()) {
    return;
  }
  for (const Json& group : old["groups"]) {
    if (!group.is_object() || !group.contains("timing") || !group["timing"].is_object() ||
        group["timing"].value("read_seconds", Json()).is_null()) {
      continue;
    }
    timing.emplace(group_identity(group), group["timing"]);
  }
}

// Shards that had KV heads of one group each timed theirs.
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
  Json groups = Json::array();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const WorkGroup& group = plan.groups[g];
    Json entry = {{"dump", plan.dumps[group.dump].fingerprint},
                  {"sequence", group.sequence},
                  {"layer", group.layer}};
    if (plan.tokens_vary) entry["tokens"] = group.shape.tokens;
    if (timing[g]) {
      entry["timing"] = {{"read_seconds", timing[g]->read_seconds},
                         {"reference_seconds", timing[g]->reference_seconds},
                         {"metrics_seconds", timing[g]->metrics_seconds}};
    } else {
      const auto found = earlier.find(group_identity(entry));
      entry["timing"] = found != earlier.end() ? found->second
                                               : Json{{"read_seconds", nullptr},
                                                      {"reference_seconds", nullptr},
                                                      {"metrics_seconds", nullptr}};
    }
    groups.push_back(std::move(entry));
  }
  return groups;
}

Json dumps_json(const Plan& plan) {
  Json dumps = Json::array();
  for (const PlannedDump& dump : plan.dumps) {
    dumps.push_back({{"path", dump.path},
                     {"fingerprint", dump.fingerprint},
                     {"model", dump.model},
                     {"n_layers", dump.n_layers}});
  }
  return dumps;
}

Json caches_json(const Plan& plan) {
  Json caches = Json::array();
  for (const auto& cache : plan.caches) {
    caches.push_back(
        {{"path", cache->path}, {"fingerprint", cache->fingerprint}, {"method", cache->method}});
  }
  return caches;
}

bool has_known_major(const Json& version) {
  return version.is_string() &&
         version.get<std::string>().substr(0, 2) == std::string(kResultsSchema, 2);
}

// InputError for a file that is not complete JSON, with its kind if it can be recognised. `at`:
// bytes read until then.
[[noreturn]] void refuse_unreadable(const std::string& path, std::size_t at) {
  std::ifstream in(path, std::ios::binary);
  std::string beginning(8, '\0');
  in.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(in.gcount()));
  if (beginning.empty()) throw InputError(path + ": is empty; " + kWanted);
  refuse_hdf5(beginning, path, kWanted);
  std::error_code ignored;
  if (beginning[0] == '{' && at > std::filesystem::file_size(path, ignored)) {
    throw InputError(path + ": is truncated, its JSON ends at byte " + std::to_string(at - 1) +
                     "; copy it again, or repeat its `kvbench run` or `kvbench merge`, which "
                     "rewrites it from the journal");
  }
  throw InputError(path + ": invalid JSON at byte " + std::to_string(at) + "; " + kWanted);
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
                  Summary& summary) {
  file.write(",\n  \"layers\": [");
  const char* separator = "\n    ";
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    if (records.layer_state(l) == CellState::kMissing) continue;
    Json record = records.read_layer(l);
    record["label"] = *plan.cells[plan.layer_records[l].cells.front()].label;
    summary.add_layer(record);
    file.write(std::exchange(separator, ",\n    "));
    file.write(to_line(record));
  }
  file.write(std::string_view(separator) == "\n    " ? "]" : "\n  ]");
}

}  // namespace

ResultsOutcome write_results(const std::string& path, const Plan& plan, const CellRecords& records,
                             const std::vector<std::optional<GroupTiming>>& timing,
                             const std::vector<std::string>& also_timed_by) {
  ResultsOutcome outcome{.ok = records.count(CellState::kOk),
                         .failed = records.count(CellState::kFailed),
                         .skipped = records.count(CellState::kSkipped),
                         .missing = records.count(CellState::kMissing),
                         .layers = {.ok = records.count_layers(CellState::kOk),
                                    .failed = records.count_layers(CellState::kFailed),
                                    .skipped = records.count_layers(CellState::kSkipped),
                                    .missing = records.count_layers(CellState::kMissing)},
                         .settings = {}};
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
  member("config", plan.config);
  member("provenance", records.provenance());
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
  member("dumps", dumps_json(plan));
  if (!plan.caches.empty()) member("caches", caches_json(plan));

  Summary summary(plan.tokens_vary, std::filesystem::absolute(path).parent_path().string());
  file.write(",\n  \"cells\": [");
  const char* separator = "\n    ";
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    if (records.state(i) == CellState::kMissing) continue;
    Json record = records.read(i);
    // The label is not part of a cell's identity: an earlier sweep may have called it otherwise.
    record["label"] = *plan.cells[i].label;
    summary.add(record);
    file.write(std::exchange(separator, ",\n    "));
    file.write(to_line(record));
  }
  file.write("\n  ]");
  if (has_layers) write_layers(file, plan, records, summary);
  member("groups", groups);
  file.write(",\n  \"summary\": [");
  separator = "\n    ";
  summary.each([&](std::string_view line) {
    file.write(std::exchange(separator, ",\n    "));
    file.write(line);
  });
  file.write(std::string_view(separator) == "\n    " ? "]\n}\n" : "\n  ]\n}\n");
  outcome.settings = summary.means();
  file.commit();
  return outcome;
}

namespace {

// `layer`: where it is not given, records of whole layers are kept.
Json read_members(const std::string& path, const std::function<void(Json&&)>& cell,
                  const std::function<void(Json&&)>& layer, bool with_summary) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw InputError(path + ": is a folder; name the results.json in it");
  }
  refuse_device(path, kWanted);
  std::ifstream in(path);
  if (!in) throw InputError(system_error(path, "open") + "; " + kWanted);
  std::string member, of_config;
  bool is_readable = true, is_list = false, is_list_of_config = false;
  std::size_t few = 0, others = 0;
  using Event = Json::parse_event_t;
  std::array<int, kDeepestRecord + 1> names = {}, held = {};
  // Elements that the parser does not keep: it looks through all it has at the end of each.
  std::map<std::string, Json> lists = {{"layers", Json::array()},  {"groups", Json::array()},
                                       {"summary", Json::array()}, {"dumps", Json::array()},
                                       {"caches", Json::array()},  {"provenance", Json::array()}};
  std::map<std::string, Json> lists_of_config;
  const Json::parser_callback_t take_cells = [&](int depth, Json::parse_event_t event,
                                                 Json& parsed) {
    if (depth > kDeepestRecord) {
      throw InputError(
          fmt::format("{}: nests deeper than {} levels; {}", path, kDeepestRecord, kWanted));
    }
    // The parser looks through all names of an object for each that it adds.
    const auto level = static_cast<std::size_t>(depth);
    if (event == Event::object_start) names[level] = 0;
    if (event == Event::key && ++names[level - 1] > kMostNames) {
      throw InputError(
          fmt::format("{}: has an object of more than {} members; {}", path, kMostNames, kWanted));
    }
    if (depth == 0 && event == Event::array_start) {
      throw InputError(path + ": is not a kvbench results file; " + kWanted);
    }
    if (depth == 1 && event == Event::key) member = parsed.get<std::string>();
    if (depth == 1 && event == Event::object_start) is_list = false;
    if (depth == 1 && event == Event::array_start) is_list = true;
    if (depth == 2 && member == "config" && !is_list) {
      if (event == Event::key) of_config = parsed.get<std::string>();
      is_list_of_config = event == Event::array_start;
    }
    if (depth >= 2 && std::ranges::find(kMembers, member) == kMembers.end()) return false;
    if (depth == 1 && event == Event::value && member == "schema_version") {
      is_readable = has_known_major(parsed);
    }
    if (depth >= 2 && member == "summary" && !with_summary) return false;
    const bool ends =
        event == Event::object_end || event == Event::array_end || event == Event::value;
    const bool is_few = std::ranges::find(kFew, member) != kFew.end();
    if (depth >= 2 && (event == Event::object_start || event == Event::array_start)) {
      held[level] = 0;
      const bool is_bound = is_few ? depth > 2 : member == "config" && depth > 3;
      if (is_bound && ++held[level - 1] > kMostHeld) {
        throw InputError(fmt::format("{}: /{} has more than {} objects in one array; {}", path,
                                     member, kMostHeld, kWanted));
      }
    }
    const std::size_t most = is_few ? kMostOfFew : kMostOfOthers;
    if (ends && depth >= 2 && (is_few || member == "config" || member == "groups") &&
        ++(is_few ? few : others) > most) {
      throw InputError(
          fmt::format("{}: /{} has more than {} values; {}", path, member, most, kWanted));
    }
    if (depth == 3 && member == "config" && is_list_of_config && ends) {
      lists_of_config[of_config].push_back(std::move(parsed));
      return false;
    }
    if (depth != 2 || !is_list || !ends) return true;
    if (member == "cells") {
      if (is_readable) cell(std::move(parsed));
      return false;
    }
    if (member == "layers" && layer && is_list) {
      if (is_readable) layer(std::move(parsed));
      return false;
    }
    const auto list = lists.find(member);
    if (list == lists.end()) return true;
    list->second.push_back(std::move(parsed));
    return false;
  };
  Json results;
  BoundedInput input(in, kLongestText, [&] {
    throw InputError(path + ": has a text, number or space of more than 1 MiB; " + kWanted);
  });
  try {
    results = Json::parse(input.begin(), input.end(), take_cells);
    // The parser takes a byte of value 0 for the end, and leaves the rest unread.
    if (input.last() == '\0') {
      throw InputError(path + ": has a byte of value 0 where its JSON ends; " + kWanted);
    }
  } catch (const std::ios_base::failure&) {
    throw InputError(path + ": cannot be read: the system reports an error; " + kWanted);
  } catch (const Json::parse_error& error) {
    refuse_unreadable(path, error.byte);
  } catch (const Json::exception& error) {
    throw InputError(path + ": cannot be read (" + error.what() + "); " + kWanted);
  }
  if (!results.is_object() || results.value("kind", Json()) != kResultsKind ||
      !results.contains("cells") || !results["cells"].is_array()) {
    refuse_other_kind(results, "a results file", path, kWanted);
    throw InputError(path + ": is not a kvbench results file; " + kWanted);
  }
  const Json version = results.value("schema_version", Json());
  if (!has_known_major(version)) {
    throw InputError(path + ": has schema version " + to_line(version) +
                     ", this program reads 1.x; run the sweep again with this version");
  }
  if (const auto layers = results.find("layers"); layers != results.end() && !layers->is_array()) {
    throw InputError(path +
                     ": /layers: must be an array of records of whole layers; write the file "
                     "anew with `kvbench run` or `kvbench merge`");
  }
  const auto put_back = [](Json& object, std::map<std::string, Json>& kept) {
    for (auto& [name, elements] : kept) {
      const auto found = object.find(name);
      if (elements.empty() || found == object.end() || !found->is_array()) continue;
      for (Json& no_object : *found) elements.push_back(std::move(no_object));
      *found = std::move(elements);
    }
  };
  put_back(results, lists);
  if (const auto config = results.find("config"); config != results.end() && config->is_object()) {
    put_back(*config, lists_of_config);
  }
  for (Json& no_object : results["cells"]) cell(std::move(no_object));
  results["cells"].clear();
  if (layer && results.contains("layers")) {
    for (Json& no_object : results["layers"]) layer(std::move(no_object));
    results["layers"].clear();
  }
  return results;
}

}  // namespace

Json read_results(const std::string& path, const std::function<void(Json&&)>& cell,
                  const std::function<void(Json&&)>& layer) {
  return read_members(path, cell, layer, false);
}

Json read_results(const std::string& path) {
  Json cells = Json::array();
  const auto keep = [&](Json&& cell) { cells.push_back(std::move(cell)); };
  Json results = read_members(path, keep, nullptr, true);
  results["cells"] = std::move(cells);
  return results;
}

}  // namespace kvbench
