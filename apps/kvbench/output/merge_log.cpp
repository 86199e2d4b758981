#include "output/merge_log.hpp"

#include "output/log.hpp"

namespace kvbench {
namespace {

void log_items(const std::vector<std::string>& items) {
  for (const std::string& item : items) log_text("  {}\n", item);
}

}  // namespace

void MergeLog::notice(const std::string& text, const std::vector<std::string>& items) {
  log_text("kvbench: {}\n", text);
  log_items(items);
}

void MergeLog::warning(const std::string& text) { log_text("kvbench: warning: {}\n", text); }

void log_merged(const std::string& out, const MergeOutcome& outcome) {
  const ResultsOutcome& counts = outcome.counts;
  log_text("{}: {} ok, {} failed, {} skipped, {} missing, from {} folders\n", out, counts.ok,
           counts.failed, counts.skipped, counts.missing, outcome.folders);
  if (counts.layers.missing > 0) {
    log_text("kvbench: {} of {} records of whole layers are missing\n", counts.layers.missing,
             outcome.layer_records);
  }
  for (const std::string& folder : outcome.absent) {
    log_text("kvbench: {}: has no journal\n", folder);
  }
  if (!outcome.missing.empty()) {
    log_text("kvbench: {} of {} cells are missing:\n", counts.missing, outcome.cells);
  }
  for (const MergeOutcome::MissingShard& shard : outcome.missing) {
    if (shard.number > 0) log_text(" of shard {}/{}\n", shard.number, outcome.shards);
    log_items(shard.items);
  }
  if (!outcome.complete()) {
    log_text(
        "kvbench: finish what is missing (kvbench run with --shard as before), then merge "
        "again\n");
  }
}

}  // namespace kvbench
