#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/device_option.hpp"
#include "cli/memory_option.hpp"
#include "cli/signals.hpp"
#include "cli/threads_option.hpp"
#include "commands.hpp"
#include "compare/record_differences.hpp"
#include "compare/summary_differences.hpp"
#include "exit_codes.hpp"
#include "numerics/counter_rng.hpp"
#include "output/cell_text.hpp"
#include "output/log.hpp"
#include "output/progress.hpp"
#include "output/table.hpp"
#include "results/cell_field.hpp"
#include "results/file_records.hpp"
#include "results/journal.hpp"
#include "results/plan_index.hpp"
#include "results/provenance.hpp"
#include "results/record_check.hpp"
#include "run/execute.hpp"
#include "run/memory_estimate.hpp"
#include "run/open_dumps.hpp"
#include "sweep/config.hpp"
#include "system/error.hpp"
#include "system/memory_limit.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

struct VerifyOptions {
  std::string results;
  std::vector<std::string> dumps;
  std::size_t sample = 20;
  std::uint32_t seed = 0;
  bool seed_given = false;
  std::string device = "auto";
  int threads = 0;
  std::uint64_t memory_limit = 0;
  bool quiet = false;
  bool json = false;
};

constexpr const char* kVerifyFooter =
    R"(Draws cells that are ok at random, computes them again from the dumps, and compares every number:
errors, memory, traffic, counters, derived values. Numbers must have the same bits if this program
and those of the results' provenance have one version, compiler and instruction set, else agree to
1e-9 (relative, and 1e-12 absolute). Exit code 4 if one differs. Dumps are known by their fingerprints,
so that --dump may name copies elsewhere; cells of dumps that are not named are not drawn. With k of N
cells wrong, n drawn cells all miss them with probability of about (1 - k/N)^n. The summary is made again
from all cells and records of whole layers of the file, and every number of it compared likewise. The
records of whole layers are not computed again. Nothing is written.

Examples:
  kvbench verify results/quick/results.json
  kvbench verify theirs.json --dump data/smollm2-constitution.h5 --sample 50 --seed 7)";

constexpr NumberTolerance kSameBits = {};
constexpr NumberTolerance kOtherMachine = {.relative = 1e-9, .absolute = 1e-12};
constexpr std::size_t kMaxListed = 20;

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

// `head`: the members of the results except their cells.
SweepConfig sweep_of(const Json& head, const VerifyOptions& options) {
  nlohmann::json resolved = head.value("config", Json());
  if (!resolved.is_object()) {
    throw InputError(options.results +
                     ": /config: must be the sweep of the results; verify a file as `kvbench run` "
                     "or `kvbench merge` wrote it");
  }
  if (!options.dumps.empty()) {
    resolved["dumps"] = nlohmann::json::array();
    for (const std::string& dump : options.dumps) {
      resolved["dumps"].push_back(std::filesystem::absolute(dump).lexically_normal().string());
    }
  }
  SweepConfig config = resolved_sweep(resolved, options.results + ": /config", all_algorithms());
  config.keep_rows = false;
  config.keep_caches = false;
  return config;
}

// Whether this program's bits should be those of the results.
bool is_same_build(const Json& head) {
  const Json here = provenance({});
  const Json runs = head.value("provenance", Json());
  const auto is_same = [&](const Json& run) {
    const auto agrees = [&](const char* name) {
      return run.value(name, Json()) == here.value(name, Json());
    };
    return run.is_object() && agrees("version") && agrees("compiler") && agrees("isa");
  };
  return runs.is_array() && !runs.empty() && std::all_of(runs.begin(), runs.end(), is_same);
}

struct Sample {
  std::vector<Json> cells;   // in the order of the file
  std::size_t ok = 0;        // cells of the file that are ok
  std::size_t eligible = 0;  // of them on this device and of the dumps
};

// Each eligible cell with the same probability, whatever their number: algorithm R.
Sample draw_sample(const FileRecords& records, const VerifyOptions& options,
                   const std::string& device, const std::set<std::string>& fingerprints) {
  const CounterRng draw(options.seed, 0, "verify/sample");
  Sample sample;
  std::vector<std::pair<std::size_t, Json>> drawn;
  const auto text_at = [](const Json& key, const char* name) {
    const auto found = key.find(name);
    return found != key.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  records.visit([&](const Json& cell) {
    if (cell.at("status") != "ok") return;
    ++sample.ok;
    const Json& key = cell.at("key");
    if (text_at(key, "device") != device || !fingerprints.contains(text_at(key, "dump"))) return;
    const std::size_t number = sample.eligible++;
    if (number < options.sample) {
      drawn.emplace_back(number, cell);
      return;
    }
    const double u = draw.uniform53(static_cast<std::uint32_t>(number));
    const auto place = static_cast<std::size_t>(u * static_cast<double>(number + 1));
    if (place < drawn.size()) drawn[place] = {number, cell};
  });
  std::sort(drawn.begin(), drawn.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, cell] : drawn) sample.cells.push_back(std::move(cell));
  return sample;
}

[[noreturn]] void refuse_no_cell(const VerifyOptions& options, const Sample& sample,
                                 const Json& head, const std::vector<PlannedDump>& dumps,
                                 const std::string& device) {
  if (sample.ok == 0) {
    throw InputError(options.results + ": has no cell that is ok; there is nothing to verify");
  }
  std::vector<std::string> errors;
  for (const PlannedDump& dump : dumps) {
    const Json known = head.value("dumps", Json::array());
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const Json& of) {
      return of.is_object() && of.value("fingerprint", Json()) == dump.fingerprint;
    });
    if (is_known) continue;
    errors.push_back(fmt::format(
        "{}: has the fingerprint {}, and {} is of other dumps; name the dump that it was made from",
        dump.path, dump.fingerprint, options.results));
  }
  if (errors.empty()) {
    errors.push_back(
        fmt::format("{}: none of its {} cells that are ok was computed on {} from these dumps; "
                    "give --device or "
                    "--dump",
                    options.results, sample.ok, device));
  }
  throw InputError(errors);
}

struct CellDifference {
  Json cell;  // cell_reference()
  RecordDifference what;
};

struct CellVerdict {
  std::size_t computed = 0;
  std::size_t equal = 0;
  std::vector<CellDifference> differences;

  void add(const Json& cell, const std::vector<RecordDifference>& found) {
    ++computed;
    equal += found.empty() ? 1 : 0;
    for (const RecordDifference& one : found) differences.push_back({cell_reference(cell), one});
  }
};

// Whether the record says of itself what the plan says of the cell with its id.
bool is_of(const Json& record, const Plan& plan, const PlannedCell& cell) {
  return is_record_of(record, plan, cell) && record.value("label", Json()) == *cell.label;
}

// The sampled cells that the sweep of the results makes, by id; the others differ already.
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

void recompute(const VerifyOptions& options, const ComputeDevice& device, const Plan& plan,
               const std::vector<Dump>& dumps, double memory_limit,
               const std::map<std::string, const Json*>& recorded, const NumberTolerance& tolerance,
               CellVerdict& verdict) {
  const StopSignals signals;
  const TemporaryFolder folder;
  Journal journal(folder.path(), plan, provenance({}),
                  {.fresh = false, .shard = "", .no_lock = true});
  const ShardSelection all = select_shard(plan, "");
  const Execution execution{.plan = plan,
                            .dumps = dumps,
                            .journal = journal,
                            .kernels = device.kernels(),
                            .check_device = [&] { device.throw_if_failed(); },
                            .rows = nullptr,
                            .caches = nullptr,
                            .selection = all,
                            .repro = [](const PlannedCell&) { return std::string(); },
                            .memory_limit = memory_limit};
  Progress progress(options.quiet || options.json);
  execute(execution, progress, StopSignals::stop());
  progress.end();
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

std::string entry_text(const Json& entry) {
  std::string text = label_text(text_of(entry.value("label", Json(""))),
                                text_of(entry.value("algorithm", Json(""))));
  const Json params = entry.value("params", Json());
  if (params.is_object() && !params.empty()) text += " " + params_text(params);
  if (entry.contains("tokens")) text += " tokens=" + text_of(entry["tokens"]);
  const Json layer = entry.value("layer", Json());
  return text + (layer.is_null() ? ", all layers" : ", layer " + text_of(layer));
}

void print_differences(const CellVerdict& verdict, const SummaryCheck& summary) {
  Table table({{"recorded"}, {"recomputed"}, {"what", Align::kLeft}, {"of", Align::kLeft}}, "  ",
              "  ");
  std::size_t rows = 0;
  const auto add = [&](const RecordDifference& what, const std::string& of) {
    if (rows++ < kMaxListed)
      table.add({text_of(what.recorded), text_of(what.recomputed), what.path, of});
  };
  for (const auto& [cell, what] : verdict.differences) add(what, cell_text(cell));
  for (const auto& [entry, what] : summary.differences) add(what, entry_text(entry));
  if (rows == 0) return;
  std::string text = table.text(terminal_columns(stdout));
  if (rows > kMaxListed) text += fmt::format("  and {} more\n", rows - kMaxListed);
  print_block(text + "\n");
}

void print_verdict(const VerifyOptions& options, const Sample& sample, const CellVerdict& verdict,
                   const SummaryCheck& summary, const NumberTolerance& tolerance) {
  print_differences(verdict, summary);
  const char* how = tolerance.relative == 0.0 ? "bit by bit" : "to 1e-9";
  print_text(
      "{} of {} cells computed again are equal, {} (drawn with --seed {} from {} of {} cells)\n",
      verdict.equal, verdict.computed, how, options.seed, sample.eligible, sample.ok);
  print_text("{} of {} entries of the summary follow from the records of the file, {}{}\n",
             summary.equal, summary.entries, how,
             summary.by_earlier_rules
                 ? "; without intervals, deviations and memory.fraction, which "
                   "schema version 1.7.0 defined anew"
                 : "");
  if (summary.layer_records > 0) {
    print_text("{} records of whole layers were not computed again\n", summary.layer_records);
  }
}

Json verdict_json(const VerifyOptions& options, const Sample& sample, const CellVerdict& verdict,
                  const SummaryCheck& summary, const NumberTolerance& tolerance) {
  Json of_summary = Json::array();
  for (const auto& [entry, what] : summary.differences) {
    of_summary.push_back({{"entry", entry},
                          {"path", what.path},
                          {"recorded", what.recorded},
                          {"recomputed", what.recomputed}});
  }
  Json differences = Json::array();
  for (const auto& [cell, what] : verdict.differences) {
    differences.push_back({{"cell", cell},
                           {"path", what.path},
                           {"recorded", what.recorded},
                           {"recomputed", what.recomputed}});
  }
  return {{"results", options.results},
          {"seed", options.seed},
          {"ok", sample.ok},
          {"eligible", sample.eligible},
          {"sampled", sample.cells.size()},
          {"computed", verdict.computed},
          {"equal", verdict.equal},
          {"relative_tolerance", tolerance.relative},
          {"absolute_tolerance", tolerance.absolute},
          {"differences", std::move(differences)},
          {"summary",
           {{"entries", summary.entries},
            {"equal", summary.equal},
            {"by_earlier_rules", summary.by_earlier_rules},
            {"differences", std::move(of_summary)}}},
          {"layer_records_not_computed_again", summary.layer_records}};
}

int run(VerifyOptions options) {
  if (options.threads > 0) set_thread_count(options.threads);
  if (!options.seed_given) options.seed = std::random_device()();
  const auto memory_limit =
      static_cast<double>(options.memory_limit > 0 ? options.memory_limit : usable_memory());
  ComputeDevice device(options.device);
  const FileRecords records(options.results, FileRecords::Kind::kCells, true);
  const Json& head = records.rest();
  SweepConfig config = sweep_of(head, options);
  OpenDumps dumps = open_dumps(config, {.memory_limit = options.memory_limit});
  device.suit(dumps.planned);
  std::set<std::string> fingerprints;
  for (const PlannedDump& dump : dumps.planned) fingerprints.insert(dump.fingerprint);
  const Sample sample = draw_sample(records, options, device.name(), fingerprints);
  if (sample.cells.empty()) {
    refuse_no_cell(options, sample, head, dumps.planned, device.name());
  }
  const NumberTolerance tolerance = is_same_build(head) ? kSameBits : kOtherMachine;

  CellVerdict verdict;
  const auto known = known_cells(
      sample, make_plan(config, dumps.planned, {}, device.name(), memory_limit), verdict);
  if (!known.empty()) {
    std::vector<std::string> ids;
    for (const auto& [id, cell] : known) ids.push_back(id);
    const Plan plan = make_plan(config, std::move(dumps.planned), ids, device.name(), memory_limit);
    check_memory_limit(plan, select_shard(plan, "").groups, thread_count(), memory_limit);
    recompute(options, device, plan, dumps.dumps, memory_limit, known, tolerance, verdict);
  }
  const SummaryCheck summary = summary_differences(options.results, tolerance);
  if (options.json) {
    print_json(verdict_json(options, sample, verdict, summary, tolerance), 2);
  } else {
    print_verdict(options, sample, verdict, summary, tolerance);
  }
  if (verdict.equal < verdict.computed || !summary.differences.empty()) return kExitViolation;
  if (verdict.computed == sample.cells.size()) return kExitDone;
  log_text("kvbench: interrupted: {} of {} cells were not computed again\n",
           sample.cells.size() - verdict.computed, sample.cells.size());
  return kExitIncomplete;
}

}  // namespace

Command add_verify(CLI::App& app) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "Compute a random sample of the cells of results again, and the summary of all, and compare");
  command->add_option("RESULTS", options->results, "A results.json")->required();
  command
      ->add_option("--dump", options->dumps,
                   "Path of a dump of the results; repeatable; default: the recorded path")
      ->type_name("DUMP")
      ->allow_extra_args(false);
  command->add_option("--sample", options->sample, "Cells to draw; all if there are no more")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  CLI::Option* seed = command->add_option("--seed", options->seed,
                                          "Seed of the draw; default: a new one, which is printed");
  add_device_option(*command, options->device);
  add_threads_option(*command, options->threads);
  add_memory_limit(*command, options->memory_limit);
  command->add_flag("--quiet", options->quiet, "No progress");
  command->add_flag("--json", options->json, "The whole report as JSON");
  command->footer(kVerifyFooter);
  return {command, [options, seed] {
            options->seed_given = seed->count() > 0;
            return run(*options);
          }};
}

}  // namespace kvbench
