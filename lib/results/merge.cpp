#include "results/merge.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "json/input_file.hpp"
#include "results/layer_record.hpp"
#include "results/record_check.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/layer_records.hpp"
#include "sweep/shard.hpp"
#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

// The part of a record that must not depend on who computed it.
Json deterministic(Json record) {
  for (const char* key : {"timing", "repro", "label"}) record.erase(key);
  return record;
}

// A header as far as all shards of a plan share it. Dumps may lie elsewhere on another machine.
Json shared_part(const Json& header) {
  Json part = {{"device", header.value("device", Json())},
               {"config", header.value("config", Json())},
               {"plan", header.value("plan", Json())}};
  if (part["config"].is_object()) part["config"].erase("dumps");
  return part;
}

// "/config/seeds/count is 3 here, 2 in a": the first place where two documents differ.
std::string difference(const Json& here, const Json& there, const std::string& other) {
  for (const Json& step : Json::diff(there, here)) {
    const Json::json_pointer place(step.at("path").get<std::string>());
    const auto at = [&](const Json& document) {
      return document.contains(place) ? to_line(document.at(place)) : std::string("absent");
    };
    return place.to_string() + " is " + at(here) + " here and " + at(there) + " in " + other;
  }
  return "";
}

// How many shards the journal at `path` is one of; 0: it is of a whole run.
int shards_of(const Json& header, const std::string& path) {
  const Json shard = header.value("shard", Json());
  if (shard.is_null()) return 0;
  try {
    if (shard.is_string()) return read_shard(shard).count;
  } catch (const InputError&) {  // which speaks of a command line
  }
  throw InputError(path + ":1: /shard: expected i/n with i from 1 to n, such as \"2/3\", got " +
                   to_line(shard) + "; the header was changed, restore it or run the shard again");
}

}  // namespace

// The last record of a cell in one journal.
struct MergedJournals::Found {
  CellState state = CellState::kMissing;
  JournalLine line;
};

MergedJournals::MergedJournals(const std::vector<std::string>& folders,
                               const std::vector<AlgorithmDescription>& algorithms,
                               double memory_limit)
    : memory_limit_(memory_limit) {
  open(folders, algorithms);
}

MergedJournals::~MergedJournals() = default;

void MergedJournals::open(const std::vector<std::string>& folders,
                          const std::vector<AlgorithmDescription>& algorithms) {
  ErrorList errors;
  for (const std::string& folder : folders) {
    errors.gather([&] { add(folder, algorithms); });
  }
  if (sources_.empty()) {
    for (const std::string& folder : absent_) {
      errors.add(folder + ": has no journal.jsonl; name the output folders of `kvbench run`");
    }
  }
  errors.throw_if_any();
  index_ = PlanIndex();
  compare_builds();
}

// Only a journal that can be merged joins the sources.
void MergedJournals::add(const std::string& folder,
                         const std::vector<AlgorithmDescription>& algorithms) {
  const std::string path = folder + "/journal.jsonl";
  refuse_device(path, "name the output folders of `kvbench run`");
  if (!file_exists(path)) {
    if (file_exists(folder) && !std::filesystem::is_directory(folder)) {
      throw InputError(folder + ": is not a directory; name the output folders of `kvbench run`");
    }
    absent_.push_back(folder);
    return;
  }
  Source source{folder, path, AppendLog(path, AppendLog::Access::kRead), {}};
  std::vector<Found> found;
  const char* remedy = "name the output folders of `kvbench run` of this version";
  const auto header = [&](Json&& said) {
    source.header = std::move(said);
    take_plan(source, algorithms);
    found.resize(cells_.size() + layers_.size());
  };
  const auto record = [&](Json&& said, JournalLine line) {
    const auto place = index_.find(said["id"].get_ref<const std::string&>());
    if (!place) return;  // a cell of another sweep, which stays in the journal
    const std::size_t i = *place;
    const bool is_sound =
        i < cells_.size() ? is_record_of(said, plan_, plan_.cells[i])
                          : is_layer_record_of(said, plan_, plan_.layer_records[i - cells_.size()]);
    if (!is_sound) {
      ++damaged_;
      return;
    }
    found[i] = {state_of(said), line};
  };
  const JournalScan scan = scan_journal(source.log, source.path, remedy, record, header);
  if (!scan.has_header) {  // its run was killed before it wrote a line
    absent_.push_back(folder);
    return;
  }
  damaged_ += scan.damaged;
  sources_.push_back(std::move(source));
  take(static_cast<std::uint32_t>(sources_.size() - 1), found);
  provenance_.insert(provenance_.end(), scan.provenance.begin(), scan.provenance.end());
}

// The first source defines the plan, the others must be of the same.
void MergedJournals::take_plan(const Source& source,
                               const std::vector<AlgorithmDescription>& algorithms) {
  const Json& header = source.header;
  if (!sources_.empty()) {
    refuse_other_plan(source);
    if (shards_of(header, source.path) != shards_) shards_ = 0;
    return;
  }
  const Json plan = header.value("plan", Json());
  const Json hash = plan.is_object() ? plan.value("hash", Json()) : Json();
  nlohmann::json document;  // description of a plan, whatever else a header holds
  for (const char* name : {"config", "dumps", "caches", "calibrations", "only", "device"}) {
    if (header.contains(name)) document[name] = header[name];
  }
  plan_ = plan_from_document(document, hash.is_string() ? hash.get<std::string>() : "", source.path,
                             algorithms, memory_limit_);
  cells_.resize(plan_.cells.size());
  layers_.resize(plan_.layer_records.size());
  index_ = PlanIndex(plan_);
  shards_ = shards_of(header, source.path);
}

void MergedJournals::refuse_other_plan(const Source& source) const {
  const Source& first = sources_.front();
  const Json here = shared_part(source.header);
  const Json there = shared_part(first.header);
  if (here == there) return;
  const auto only = [](const Source& each) {
    const Json globs = each.header.value("only", Json());
    return globs.empty() ? "without --only" : "with --only " + to_line(globs);
  };
  if (only(source) != only(first)) {
    throw InputError(source.path + ": was run " + only(source) + ", and " + first.path + " " +
                     only(first) +
                     "; split a sweep by --shard i/n, or run all of it into one of these folders, "
                     "which keeps its cells");
  }
  const bool other_device = here["device"] != there["device"];
  throw InputError(source.path + ": is of another plan than " + first.path + ": " +
                   difference(here, there, first.folder) +
                   (other_device ? "; values of two devices differ in their last bits: run all "
                                   "shards with the same --device"
                                 : "; merge shards of one sweep only"));
}

void MergedJournals::take(std::uint32_t journal, const std::vector<Found>& found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].state == CellState::kMissing) continue;
    const Cell here{journal, found[i].state, found[i].line};
    if (i < cells_.size()) {
      const PlannedCell& cell = plan_.cells[i];
      take_one(cells_[i], here,
               [&] { return "cell " + cell.id.text() + " (" + cell_path(plan_, cell) + ")"; });
    } else {
      const PlannedLayerRecord& layer = plan_.layer_records[i - cells_.size()];
      take_one(layers_[i - cells_.size()], here, [&] {
        return "layer record " + layer.id + " (" + layer_record_path(plan_, layer) + ")";
      });
    }
  }
}

void MergedJournals::take_one(Cell& held, const Cell& found,
                              const std::function<std::string()>& name) {
  if (held.state == CellState::kMissing) {
    held = found;
    return;
  }
  if (held.state != CellState::kOk || found.state != CellState::kOk) {
    if (found.state == CellState::kOk) held = found;
    return;
  }
  const Source& a = sources_[held.journal];
  const Source& b = sources_[found.journal];
  const Json here = deterministic(read_record(b.log, found.line).record);
  const Json there = deterministic(read_record(a.log, held.line).record);
  if (here == there) return;
  throw InputError(b.path + ": " + name() + ": " + difference(here, there, a.folder) +
                   "; leave one of the two folders out");
}

void MergedJournals::compare_builds() {
  for (const char* key : {"version", "git", "compiler", "flags", "isa"}) {
    std::set<std::string> values;
    for (const Json& run : provenance_) {
      if (run.is_object()) values.insert(to_line(run.value(key, Json())));
    }
    if (values.size() > 1) differing_builds_.emplace_back(key);
  }
}

bool MergedJournals::is_anonymous() const {
  return std::any_of(sources_.begin(), sources_.end(), [](const Source& source) {
    return source.header.value("anonymous", Json()) == true;
  });
}

std::vector<std::string> MergedJournals::folders() const {
  std::vector<std::string> names;
  for (const Source& source : sources_) names.push_back(source.folder);
  return names;
}

std::size_t MergedJournals::count(CellState state) const {
  return std::count_if(cells_.begin(), cells_.end(),
                       [state](const Cell& cell) { return cell.state == state; });
}

std::size_t MergedJournals::count_layers(CellState state) const {
  return std::count_if(layers_.begin(), layers_.end(),
                       [state](const Cell& layer) { return layer.state == state; });
}

StoredRecord MergedJournals::stored_layer(std::size_t layer) const {
  const Cell& found = layers_[layer];
  return read_record(sources_[found.journal].log, found.line);
}

StoredRecord MergedJournals::stored(std::size_t cell) const {
  const Cell& found = cells_[cell];
  return read_record(sources_[found.journal].log, found.line);
}

}  // namespace kvbench
