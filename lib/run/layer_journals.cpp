#include "run/layer_journals.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "json/json.hpp"
#include "results/journal_scan.hpp"
#include "results/plan_index.hpp"
#include "system/append_log.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

constexpr const char* kDumpRoute = "save the dump (save=) and run this sweep on it";

bool decides_for_model(const SweepEntry& entry) {
  for (Index i = 0; i < entry.points(); ++i) {
    if (entry.algorithm->replay_scope(entry.point(i)) == ReplayScope::kModel) return true;
  }
  return false;
}

// Whether `chosen` has the one that there is; all of what there is are chosen then.
template <class T>
bool choose(std::optional<std::vector<T>>& chosen, const T& one) {
  if (!chosen) return true;
  const bool has = std::find(chosen->begin(), chosen->end(), one) != chosen->end();
  chosen.reset();
  return has;
}

bool choose(Selection& selection, const std::string& sequence, int layer) {
  const bool has_sequence = choose(selection.sequences, sequence);
  return choose(selection.layers, layer) && has_sequence;
}

}  // namespace

std::optional<SweepConfig> of_layer(SweepConfig config, const std::string& sequence, int layer) {
  if (!choose(config.select, sequence, layer)) return std::nullopt;
  std::erase_if(config.entries,
                [&](SweepEntry& entry) { return !choose(entry.where, sequence, layer); });
  if (config.entries.empty()) return std::nullopt;
  std::erase_if(config.wheres, [&](auto& where) { return !choose(where.second, sequence, layer); });
  return config;
}

void require_layer_by_layer(const SweepConfig& config) {
  ErrorList errors(config.path);
  for (const SweepEntry& entry : config.entries) {
    const auto refuse = [&](const char* what) {
      errors.add(fmt::format("{}: {}: {} {}; {}", config.path, entry.pointer, entry.algorithm->id,
                             what, kDumpRoute));
    };
    if (entry.names_files()) refuse("replays a cache file, which is of a whole dump");
    if (!entry.names_files() && decides_for_model(entry)) {
      refuse("decides for all layers together, and layers are measured one by one");
    }
  }
  if (config.keep_rows || config.keep_caches) {
    errors.add(fmt::format("{}: /output: values of rows and caches are written of dumps alone; {}",
                           config.path, kDumpRoute));
  }
  errors.throw_if_any();
}

void take_over(const std::string& path, const std::string& fingerprint,
               const Execution& execution) {
  const Plan& plan = execution.plan;
  Journal& journal = execution.journal;
  const PlanIndex index(plan);
  const auto take = [&](Json&& record, JournalLine) {
    const auto key = record.find("key");
    if (key == record.end() || !key->is_object() || key->value("dump", Json()) != fingerprint) {
      return;
    }
    nlohmann::json own = *key;
    own["dump"] = plan.dumps.front().fingerprint;
    const std::string id = hash128_hex(exact_line(own));
    const auto place = index.find(id);
    if (!place) return;
    record["id"] = id;
    record["key"] = own;
    record.erase("run");
    if (*place < plan.cells.size()) {
      if (journal.state(*place) == state_of(record)) return;
      record["repro"] = execution.repro(plan.cells[*place]);
      journal.append(*place, record);
      return;
    }
    const std::size_t layer = *place - plan.cells.size();
    if (journal.layer_state(layer) == state_of(record)) return;
    record["repro"] = execution.repro(plan.layer_records[layer]);
    journal.append_layer(layer, record);
  };
  scan_journal(AppendLog(path, AppendLog::Access::kRead), path, "measure the layer again", take);
}

}  // namespace kvbench
