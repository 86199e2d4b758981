#include <memory>
#include <string>

#include "cli/memory_option.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/merge_log.hpp"
#include "run/merge_folders.hpp"

namespace kvbench {
namespace {

constexpr const char* kMergeFooter =
    R"(Reads journal.jsonl, and results.rows.h5 where the sweep keeps per-row values, of each folder, and
writes what one run of the whole sweep would have written; the dumps are not needed. FILE is put into
place at once; per-row values go next to it, to results.rows.h5 for results.json. Merges into one FILE
take turns. A FILE of another sweep and a folder in which a run works are refused. Journals of other
plans, also of the same sweep on another device, are refused. While cells are missing FILE is marked
incomplete, stderr lists them, and the exit code is 5: finish those shards, then merge again.

Examples:
  kvbench merge shard-1 shard-2 shard-3 --out results/mine/results.json
  kvbench merge results/mine/shards/* --out results/mine/results.json)";

int merge(const MergeRequest& request) {
  MergeLog log;
  const MergeOutcome outcome = merge_folders(request, log);
  log_merged(request.out, outcome);
  if (!outcome.complete()) return kExitIncomplete;
  return outcome.counts.failed + outcome.counts.layers.failed > 0 ? kExitFailedCells : kExitDone;
}

}  // namespace

Command add_merge(CLI::App& app) {
  const auto options = std::make_shared<MergeRequest>();
  CLI::App* command = app.add_subcommand("merge", "Join the journals of shards into one result");
  command->add_option("DIR", options->folders, "Output folders of `kvbench run --shard`, or globs")
      ->required();
  command->add_option("-o,--out", options->out, "The results file to write")
      ->type_name("FILE")
      ->required();
  add_memory_limit(*command, options->memory_limit);
  command->add_flag("--no-lock", options->no_lock,
                    "Do not lock FILE; you must make sure that no other merge or run writes there");
  command->footer(kMergeFooter);
  return {command, [options] { return merge(*options); }};
}

}  // namespace kvbench
