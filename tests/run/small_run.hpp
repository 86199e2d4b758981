// A synthetic dump in a folder of its own, a sweep over it, and what a run of it needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "results/journal.hpp"
#include "run/execute.hpp"
#include "run/open_dumps.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/sweep_folder.hpp"
#include "synth/synth.hpp"

namespace kvbench::test {

// One sequence of 64 tokens, 2 layers of 2 KV heads with 2 query heads each.
inline SynthOptions small_synth() {
  SynthOptions options;
  options.kind = "gaussian";
  options.tokens = 64;
  options.layers = 2;
  options.d = 8;
  options.dtype = "float64";
  options.out_rows = 8;
  return options;
}

class CountingObserver : public RunObserver {
 public:
  void begin(std::size_t cells) override { begun.push_back(cells); }
  void at(const std::string& place) override { places.push_back(place); }
  void cell_done() override { ++done; }

  std::vector<std::size_t> begun;
  std::vector<std::string> places;
  std::size_t done = 0;
};

class SmallRun {
  SweepFolder folder_;  // outlives what is open in it

 public:
  explicit SmallRun(const std::string& algorithms = entry("exact", "") + ", " +
                                                    entry("window", R"("budget": 8)"),
                    const std::vector<AlgorithmDescription>& table = all_algorithms(),
                    const SynthOptions& synth = small_synth()) {
    synthesize(synth, dump_path());
    SweepConfig config = parse_sweep(sweep(algorithms, R"("evaluate": {"rows": {"last": 4}})"),
                                     folder_.file("quick.json"), {}, table);
    OpenDumps opened = open_dumps(config);
    dumps = std::move(opened.dumps);
    plan = make_plan(config, std::move(opened.planned));
    selection = select_shard(plan, "");
    open_journal();
  }

  // Anew, as the next run finds it.
  void open_journal() {
    journal.reset();
    journal =
        std::make_unique<Journal>(folder_.file("out"), plan, Json::object(), Journal::Options{});
  }
  std::string journal_path() const { return folder_.file("out/journal.jsonl"); }

  std::string dump_path() const { return folder_.file("a.h5"); }

  Execution execution() const { return execution(device); }
  Execution execution(const RunDevice& on) const {
    return {.plan = plan,
            .dumps = dumps,
            .journal = *journal,
            .device = on,
            .rows = nullptr,
            .caches = nullptr,
            .selection = selection,
            .source = {.file = "quick.json"},
            .retry_failed = false};
  }

  RunDevice device;
  Plan plan;
  std::vector<Dump> dumps;
  ShardSelection selection;
  std::unique_ptr<Journal> journal;
};

}  // namespace kvbench::test
