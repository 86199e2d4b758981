#include "verify/recompute.hpp"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "results/journal.hpp"
#include "results/plan_index.hpp"
#include "results/provenance.hpp"
#include "results/record.hpp"
#include "results/record_check.hpp"
#include "run/execute.hpp"
#include "sweep/cell_identity.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

// A folder of its own for the journal, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string name =
        (std::filesystem::temp_directory_path(error) / "kvbench-verify-XXXXXX").string();
    if (error || ::mkdtemp(name.data()) == nullptr) {
      throw InputError("no temporary folder can be made; set TMPDIR to one that can be written");
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Whether key and label of the record are those of the cell with its id.
bool is_of(const Json& record, const Plan& plan, const PlannedCell& cell) {
  return is_record_of(record, plan, cell) && record.value("label", Json()) == *cell.label;
}

}  // namespace

std::map<std::string, const Json*> known_cells(const Sample& sample, const Plan& whole,
                                               CellVerdict& verdict) {
  const PlanIndex planned(whole);
  std::map<std::string, const Json*> known;
  for (const Json& cell : sample.cells) {
    const Json id = cell.value("id", Json());
    const auto found = id.is_string() ? planned.find(id.get<std::string>()) : std::nullopt;
    if (!found || *found >= whole.cells.size()) {
      verdict.add(cell, {{"id", id, "not a cell of the results' own sweep and dumps"}});
    } else if (!is_of(cell, whole, whole.cells[*found])) {
      verdict.add(cell, {{"key", cell.at("key"), cell_key(whole, whole.cells[*found])}});
    } else {
      known[id.get<std::string>()] = &cell;
    }
  }
  return known;
}

void recompute(const PlannedRun& planned, const RunDevice& device,
               const std::map<std::string, const Json*>& recorded, const NumberTolerance& tolerance,
               RunObserver& observer, std::atomic<bool>& stop, CellVerdict& verdict) {
  const Plan& plan = planned.plan;
  const TemporaryFolder folder;
  Journal journal(folder.path(), plan, provenance({}),
                  {.fresh = false, .shard = "", .no_lock = true});
  const Execution execution{.plan = plan,
                            .dumps = planned.dumps,
                            .journal = journal,
                            .device = device,
                            .rows = nullptr,
                            .caches = nullptr,
                            .selection = planned.selection,
                            .folder = folder.path(),
                            .memory_limit = planned.memory_limit};
  execute(execution, observer, stop);
  observer.end();
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (journal.state(c) == CellState::kMissing) continue;
    const auto found = recorded.find(plan.cells[c].id);
    if (found == recorded.end()) continue;
    const Json again = journal.read(c);
    auto differences = record_differences(*found->second, again, tolerance);
    if (journal.state(c) != CellState::kOk) {
      const std::string reason = again.value("status", "") + ": " + again.value("reason", "");
      differences = {{"status", "ok", reason}};
    }
    verdict.add(*found->second, differences);
  }
}

}  // namespace kvbench
