// A journal found in an output folder: refused with its place, or resumed. A resumed journal is at
// the place where it was found, and the records that a run adds are there at the next opening.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "fuzz/promise.hpp"
#include "fuzz/scratch_folder.hpp"
#include "results/journal.hpp"

using namespace kvbench;
using fuzz::promise;

namespace {

Plan made_plan() {
  Plan plan;
  plan.name = "p";
  plan.hash = "h";
  plan.config = {{"name", "p"}};
  static const AlgorithmDescription algorithm = [] {
    AlgorithmDescription made;
    made.id = "exact";
    return made;
  }();
  plan.dumps.push_back({"/d.h5", "f", "", "m", 1, {}});
  plan.groups.emplace_back().sequence = "0";
  PlannedSetting setting;
  setting.label = "exact";
  setting.algorithm = &algorithm;
  setting.params = std::make_shared<const Params>();
  const std::size_t exact = plan.cells.add_setting(setting);
  for (const char digit : {'a', 'b', 'c'}) {
    const int kv_head = static_cast<int>(plan.cells.size());
    plan.cells.add(0, kv_head, exact, 0, Key128::from_text(std::string(32, digit)).value());
  }
  return plan;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string path = fuzz::kScratchFolder.file("journal.jsonl");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const Plan plan = made_plan();
  const Json run = {{"version", "fuzz"}};
  std::size_t found = 0;
  std::vector<Json> records(plan.cells.size());
  try {
    Journal journal(fuzz::kScratchFolder.path(), plan, run, {});
    for (std::size_t c = 0; c < plan.cells.size(); ++c) {
      if (journal.state(c) == CellState::kMissing) continue;
      records[c] = journal.read(c);
      promise(records[c].at("id") == plan.cells[c].id.text(), "another cell's record");
      ++found;
    }
    promise(found == journal.reused_cells(), "resumed cells are miscounted");
    records[1] = {{"id", plan.cells[1].id.text()},
                  {"key", cell_key(plan, plan.cells[1])},
                  {"status", "failed"},
                  {"reason", "made"}};
    journal.append(1, records[1]);
  } catch (const InputError& error) {
    fuzz::check_refusal(error, fuzz::kScratchFolder.path());
    return 0;
  }
  const Journal again(fuzz::kScratchFolder.path(), plan, run, {});
  promise(again.state(1) == CellState::kFailed, "an appended record is not found");
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    const bool there = again.state(c) != CellState::kMissing;
    promise(there == !records[c].is_null() && (!there || again.read(c) == records[c]),
            "a record is not what it was");
  }
  return 0;
}
