#include "results/journal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "json/input_file.hpp"
#include "results/layer_record.hpp"
#include "results/output_folder.hpp"
#include "results/plan_index.hpp"
#include "results/record_check.hpp"
#include "sweep/plan_document.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/shortened.hpp"

namespace kvbench {
namespace {

constexpr std::chrono::milliseconds kSyncAfter{800};

constexpr const char* kRemedy = "choose another --out, or pass --fresh to replace it";

constexpr const char* kOtherSweep =
    "choose another --out, discard them by --fresh, or keep both in this folder by --add";

Json header_of(const Plan& plan, const Journal::Options& options) {
  Json header = {{"kind", kJournalKind},
                 {"schema_version", kJournalSchema},
                 {"name", plan.name},
                 {"plan", {{"hash", plan.hash}, {"cells", plan.cells.size()}}},
                 {"shard", options.shard.empty() ? Json(nullptr) : Json(options.shard)}};
  if (options.anonymous) header["anonymous"] = true;
  const Json document = plan_document(plan);
  for (const auto& part : document.items()) header[part.key()] = part.value();
  for (const PlannedDump& dump : plan.dumps) {
    if (!dump.state.empty()) header["dump_states"][dump.fingerprint] = dump.state;
  }
  return header;
}

struct KnownDump {
  std::string path;
  std::string fingerprint;
};

// The dumps whose cells a journal may hold, as its header has them.
std::vector<KnownDump> known_dumps(const Json& header) {
  std::vector<KnownDump> known;
  for (const char* key : {"dumps", "earlier_dumps"}) {
    const Json listed = header.value(key, Json());
    if (!listed.is_array()) continue;
    for (const Json& dump : listed) {
      if (!dump.is_object()) continue;
      const Json path = dump.value("path", Json());
      const Json fingerprint = dump.value("fingerprint", Json());
      if (path.is_string() && fingerprint.is_string()) known.push_back({path, fingerprint});
    }
  }
  return known;
}

// Whether it is of a whole layer, of this plan or another.
bool is_layer(const Json& record) {
  const auto key = record.find("key");
  return key != record.end() && key->is_object() && !key->contains("kv_head");
}

template <class Predicate>
bool any_dump(const Plan& plan, const Predicate& holds) {
  return std::any_of(plan.dumps.begin(), plan.dumps.end(), holds);
}

// The header's entries of dumps that the plan does not name: their cells are still in the journal.
Json earlier_dumps(const Json& header, const Plan& plan) {
  Json earlier = Json::array();
  for (const KnownDump& dump : known_dumps(header)) {
    if (any_dump(plan, [&](const PlannedDump& planned) { return planned.path == dump.path; })) {
      continue;
    }
    earlier.push_back({{"path", dump.path}, {"fingerprint", dump.fingerprint}});
  }
  return earlier;
}

// The states of dumps by fingerprint, for dumps whose fingerprint is of samples.
Json dump_states(const Json& header) {
  Json states = header.value("dump_states", Json());
  return states.is_object() ? states : Json::object();
}

// Samples do not show every change of a file; its size and time do.
std::string changed_beside_samples(const PlannedDump& dump, const std::string& before,
                                   const std::string& path) {
  std::string remedy = "restore it";
  const std::size_t size = before.find(" bytes, ");
  if (size != std::string::npos && before.substr(0, size + 8) == dump.state.substr(0, size + 8)) {
    remedy += fmt::format(", give a copy of the same bytes its time by `touch -d @{} '{}'`",
                          shortened(before.substr(size + 8)), dump.path);
  }
  return fmt::format(
      "{}: was written or copied since {} was started ({}, was {}), and its fingerprint is of "
      "samples; {}, choose another --out, or pass --fresh to discard existing cells",
      dump.path, path, dump.state, shortened(before), remedy);
}

// The same file with other content: its finished cells are of no use, and going on would mix two
// dumps in one folder.
void refuse_changed_dumps(const Json& header, const Plan& plan, const std::string& path) {
  ErrorList errors;
  for (const KnownDump& dump : known_dumps(header)) {
    if (any_dump(plan, [&](const PlannedDump& planned) {
          return planned.fingerprint == dump.fingerprint;
        })) {
      continue;
    }
    for (const PlannedDump& planned : plan.dumps) {
      if (planned.path != dump.path) continue;
      errors.add(planned.path + ": has changed since " + path + " was started (fingerprint " +
                 planned.fingerprint + ", was " + dump.fingerprint +
                 "); restore it, choose another --out, or pass --fresh to discard existing "
                 "cells");
    }
  }
  const Json states = dump_states(header);
  for (const PlannedDump& dump : plan.dumps) {
    const Json before = states.value(dump.fingerprint, Json());
    if (dump.state.empty() || !before.is_string() || before == dump.state) continue;
    errors.add(changed_beside_samples(dump, before.get<std::string>(), path));
  }
  errors.throw_if_any();
}

}  // namespace

Journal::Journal(const std::string& folder, const Plan& plan, Json run, const Options& options)
    : path_(folder + "/journal.jsonl"),
      cells_(plan.cells.size()),
      layers_(plan.layer_records.size()),
      run_(std::move(run)),
      is_anonymous_(options.anonymous) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) {
    throw IoError(write_error(folder, "create the output folder", problem.value()));
  }
  lock_ = lock_run_folder(folder, options.no_lock);
  Json header = header_of(plan, options);
  finished_run_.emplace(folder, header, plan.keep_rows);
  open_or_create(folder, plan, options, std::move(header));
  syncer_ = std::thread([this] { sync_late(); });
}

Journal::~Journal() {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  syncer_.join();
  if (!dirty_) return;
  try {
    sync_files();
  } catch (const IoError&) {
    // A destructor cannot report it; callers that must know call sync().
  }
}

void Journal::begin_anew(Json header) {
  header["provenance"] = Json::array({run_});
  create(header, 0, 0);
  provenance_ = {run_};
  run_is_recorded_ = true;
}

// Finds the last record of each cell. `finished_elsewhere`: hashes of the ids of cells that are ok
// and not of the plan.
JournalScan Journal::scan(const Plan& plan, KeyIndex& finished_elsewhere) {
  const PlanIndex index(plan);
  return scan_journal(*log_, path_, kRemedy, [&](Json&& record, JournalLine line) {
    const auto& id = record["id"].get_ref<const std::string&>();
    const auto place = index.find(id);
    if (!place) {
      if (is_layer(record)) return;
      foreign_.add(hash128(id));
      if (state_of(record) == CellState::kOk) finished_elsewhere.add(hash128(id));
      return;
    }
    const bool is_cell = *place < cells_.size();
    const std::size_t i = is_cell ? *place : *place - cells_.size();
    if (!(is_cell ? is_record_of(record, plan, plan.cells[i])
                  : is_layer_record_of(record, plan, plan.layer_records[i]))) {
      ++damaged_;
      return;
    }
    (is_cell ? cells_ : layers_)[i] = {line, state_of(record)};
  });
}

void Journal::open_or_create(const std::string& folder, const Plan& plan, const Options& options,
                             Json header) {
  const bool may_replace = options.fresh || options.add;
  if (!options.fresh) refuse_device(path_, kRemedy);
  if (options.fresh || !file_exists(path_)) {
    if (!may_replace) refuse_other_results(folder + "/results.json", plan, kOtherSweep);
    begin_anew(std::move(header));
    return;
  }
  log_.emplace(path_, AppendLog::Access::kWrite);
  if (take_finished(plan)) return;
  KeyIndex finished_elsewhere;  // hashes of ids
  JournalScan scan = this->scan(plan, finished_elsewhere);
  if (!scan.has_header) {
    log_.reset();
    if (!may_replace) refuse_other_results(folder + "/results.json", plan, kOtherSweep);
    begin_anew(std::move(header));
    return;
  }
  refuse_changed_dumps(scan.header, plan, path_);
  const Json& before = scan.header.contains("plan") ? scan.header["plan"] : Json();
  plan_changed_ = !before.is_object() || before.value("hash", Json()) != plan.hash;
  if (plan_changed_ && !may_replace) {
    if (finished_elsewhere.size() > 0) {
      throw InputError(fmt::format(
          "{}: has {} finished cells of another sweep, {}; {}", folder, finished_elsewhere.size(),
          shortened(to_line(scan.header.value("name", Json()))), kOtherSweep));
    }
    refuse_other_results(folder + "/results.json", plan, kOtherSweep);
  }
  provenance_ = std::move(scan.provenance);
  damaged_ += scan.damaged;
  reused_cells_ = cells_.size() - count(CellState::kMissing);
  if (Json earlier = earlier_dumps(scan.header, plan); !earlier.empty()) {
    header["earlier_dumps"] = std::move(earlier);
  }
  if (Json states = dump_states(scan.header); !states.empty()) {
    states.update(dump_states(header));
    header["dump_states"] = std::move(states);
  }
  const Json listed = scan.header.value("provenance", Json());
  header["provenance"] = listed.is_array() ? listed : Json::array();
  if (header != scan.header) {
    create(header, scan.header_size, scan.whole_size);
    const std::int64_t shift = log_->size() - scan.whole_size;
    for (Cell& cell : cells_) cell.line.offset += shift;
    for (Cell& layer : layers_) layer.line.offset += shift;
    return;
  }
  log_->cut(scan.whole_size);
}

// Puts a journal with `header` and bytes [copy_from, copy_to) of the open one into place.
void Journal::create(const Json& header, std::int64_t copy_from, std::int64_t copy_to) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;
  AtomicFile file(path_);
  file.write(to_line(header) + "\n");
  for (std::int64_t at = copy_from; at < copy_to; at += kChunk) {
    file.write(log_->read(at, std::min(kChunk, copy_to - at)));
  }
  file.commit();
  log_.emplace(path_, AppendLog::Access::kWrite);
}

std::size_t Journal::count(CellState state) const {
  return std::count_if(cells_.begin(), cells_.end(),
                       [state](const Cell& cell) { return cell.state == state; });
}

std::size_t Journal::count_layers(CellState state) const {
  return std::count_if(layers_.begin(), layers_.end(),
                       [state](const Cell& layer) { return layer.state == state; });
}

void Journal::append(std::size_t cell, const Json& record) { cells_[cell] = append_line(record); }

void Journal::append_layer(std::size_t layer, const Json& record) {
  layers_[layer] = append_line(record);
}

// Takes the states of a finished run; false if there is none.
bool Journal::take_finished(const Plan& plan) {
  auto found = finished_run_->find();
  if (!found || found->cells.size() != cells_.size() || found->layers.size() != layers_.size()) {
    return false;
  }
  for (std::size_t c = 0; c < cells_.size(); ++c) cells_[c].state = found->cells[c];
  for (std::size_t l = 0; l < layers_.size(); ++l) layers_[l].state = found->layers[l];
  reused_cells_ = cells_.size() - count(CellState::kMissing);
  read_lines_ = [this, &plan] {
    KeyIndex ignored;
    provenance_ = scan(plan, ignored).provenance;
  };
  finished_ = std::move(found->compared);
  return true;
}

void Journal::note_finished(const ComparedSettings& compared) const {
  if (foreign_cells() > 0 || damaged_ > 0) return;
  FinishedRecords records{.cells = {}, .layers = {}, .compared = compared};
  for (const Cell& cell : cells_) records.cells.push_back(cell.state);
  for (const Cell& layer : layers_) records.layers.push_back(layer.state);
  finished_run_->note(records);
}

void Journal::require_lines() const {
  if (read_lines_) std::exchange(read_lines_, nullptr)();
}

Journal::Cell Journal::append_line(const Json& record) {
  require_lines();
  finished_.reset();
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!sync_error_.empty()) throw IoError(sync_error_);
  }
  std::string line;
  if (run_is_recorded_) {
    line = to_line(record);
  } else {
    Json with_run = record;
    with_run["run"] = run_;
    line = to_line(with_run);
  }
  line += '\n';
  const std::int64_t offset = log_->append(line);
  if (!std::exchange(run_is_recorded_, true)) provenance_.push_back(run_);
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    dirty_ = true;
  }
  wake_.notify_all();
  return {{offset, static_cast<std::int64_t>(line.size()) - 1}, state_of(record)};
}

StoredRecord Journal::stored(std::size_t cell) const {
  require_lines();
  return read_record(*log_, cells_[cell].line);
}

StoredRecord Journal::stored_layer(std::size_t layer) const {
  require_lines();
  return read_record(*log_, layers_[layer].line);
}

void Journal::sync_before(const std::string& path) {
  const std::lock_guard<std::mutex> hold(mutex_);
  companions_.emplace_back(path, AppendLog::Access::kRead);
}

void Journal::sync_files() const {
  for (const AppendLog& companion : companions_) companion.sync();
  log_->sync();
}

void Journal::sync() {
  const std::lock_guard<std::mutex> hold(mutex_);
  dirty_ = false;
  if (!sync_error_.empty()) throw IoError(sync_error_);
  try {
    sync_files();
  } catch (const IoError& error) {
    sync_error_ = error.what();
    throw;
  }
}

void Journal::sync_late() {
  std::unique_lock<std::mutex> hold(mutex_);
  while (!closing_) {
    wake_.wait(hold, [this] { return dirty_ || closing_; });
    wake_.wait_for(hold, kSyncAfter, [this] { return closing_; });
    if (!std::exchange(dirty_, false)) continue;
    hold.unlock();
    std::string failed;
    try {
      sync_files();
    } catch (const IoError& error) {
      failed = error.what();
    }
    hold.lock();
    if (!failed.empty()) sync_error_ = failed;
  }
}

}  // namespace kvbench
