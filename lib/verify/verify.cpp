#include "verify/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "algorithms/registry.hpp"
#include "results/file_records.hpp"
#include "results/provenance.hpp"
#include "run/memory_estimate.hpp"
#include "run/open_dumps.hpp"
#include "run/run_sweep.hpp"
#include "run/shard_selection.hpp"
#include "sweep/dump_paths.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"
#include "system/memory_limit.hpp"
#include "system/parallel.hpp"
#include "verify/recompute.hpp"

namespace kvbench {
namespace {

constexpr NumberTolerance kSameBits = {};
constexpr NumberTolerance kOtherMachine = {.relative = 1e-9, .absolute = 1e-12};

// Takes the methods written in Python, which have a parameter `source`, out of a sweep.
std::set<std::string> take_python_methods(nlohmann::json& sweep, const std::string& results) {
  std::set<std::string> taken;
  const auto entries = sweep.find("algorithms");
  if (entries == sweep.end() || !entries->is_array()) return taken;
  nlohmann::json left = nlohmann::json::array();
  for (const nlohmann::json& entry : *entries) {
    const auto text = [&](const char* name) {
      return entry.is_object() ? entry.value(name, nlohmann::json()) : nlohmann::json();
    };
    const nlohmann::json id = text("algorithm");
    const bool is_unknown = id.is_string() && text("params").contains("source") &&
                            find_algorithm(id.get<std::string>()) == nullptr;
    if (is_unknown) {
      taken.insert(id.get<std::string>());
    } else {
      left.push_back(entry);
    }
  }
  if (left.empty() && !taken.empty()) {
    throw InputError(fmt::format(
        "{}: all its methods are written in Python ({}), and this program cannot compute their "
        "cells; run them again in Python, kvbench.run(.., methods=[..], out=\"again\"), and "
        "compare: "
        "kvbench compare {} again/results.json",
        results, fmt::join(taken, ", "), results));
  }
  *entries = std::move(left);
  return taken;
}

// `head`: the members of the results without their cells. `unknown`: gets the methods of the sweep
// that are left out.
SweepConfig sweep_of(const Json& head, const VerifyRequest& request,
                     std::set<std::string>& unknown) {
  nlohmann::json resolved = head.value("config", Json());
  if (!resolved.is_object()) {
    throw InputError(request.results +
                     ": /config: must be the sweep of the results; verify a file as `kvbench run` "
                     "or `kvbench merge` wrote it");
  }
  if (!request.dumps.empty()) {
    resolved["dumps"] = nlohmann::json::array();
    for (const std::string& dump : dumps_of_option(request.dumps)) {
      resolved["dumps"].push_back(std::filesystem::absolute(dump).lexically_normal().string());
    }
  }
  unknown = take_python_methods(resolved, request.results);
  SweepConfig config = resolved_sweep(resolved, request.results + ": /config", all_algorithms());
  config.keep_rows = false;
  config.keep_caches = false;
  return config;
}

// Dumps that are no longer where the results say.
void refuse_moved(const std::vector<std::string>& dumps, const std::string& results) {
  ErrorList errors;
  for (const std::string& dump : dumps) {
    std::error_code ignored;
    if (std::filesystem::exists(dump, ignored)) continue;
    errors.add(dump + ": no such file, and " + results + " was made from it; name it by --dump");
  }
  errors.throw_if_any();
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

[[noreturn]] void refuse_no_cell(const VerifyRequest& request, const Sample& sample,
                                 const Json& head, const std::vector<PlannedDump>& dumps,
                                 const std::string& device) {
  if (sample.ok == 0) {
    throw InputError(request.results + ": has no cell that is ok; there is nothing to verify");
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
        dump.path, dump.fingerprint, request.results));
  }
  if (errors.empty()) {
    errors.push_back(
        fmt::format("{}: none of its {} cells that are ok was computed on {} from these dumps; "
                    "give --device or "
                    "--dump",
                    request.results, sample.ok - sample.unknown, device));
  }
  throw InputError(errors);
}

}  // namespace

Verification verify(const VerifyRequest& request, RunDevice& device, RunObserver& observer,
                    std::atomic<bool>& stop) {
  const double memory_limit = request.memory_limit > 0 ? request.memory_limit : usable_memory();
  const FileRecords records(request.results, FileRecords::Kind::kCells, true);
  const Json& head = records.rest();
  Verification out;
  SweepConfig config = sweep_of(head, request, out.unknown);
  if (request.dumps.empty()) refuse_moved(config.dumps, request.results);
  OpenDumps dumps = open_dumps(config, {.memory_limit = request.memory_limit});
  device.suit(dumps.planned);
  std::set<std::string> fingerprints;
  for (const PlannedDump& dump : dumps.planned) fingerprints.insert(dump.fingerprint);
  out.sample =
      draw_sample(records, request.sample, request.seed, device.name(), fingerprints, out.unknown);
  if (out.sample.cells.empty()) {
    refuse_no_cell(request, out.sample, head, dumps.planned, device.name());
  }
  out.tolerance = is_same_build(head) ? kSameBits : kOtherMachine;

  const auto known = known_cells(
      out.sample, make_plan(config, dumps.planned, {}, device.name(), memory_limit), out.verdict);
  if (!known.empty()) {
    std::vector<std::string> ids;
    for (const auto& [id, cell] : known) ids.push_back(id);
    PlannedRun run{
        .dumps = std::move(dumps.dumps),
        .plan = make_plan(config, std::move(dumps.planned), ids, device.name(), memory_limit),
        .selection = {},
        .memory_limit = memory_limit};
    run.selection = select_shard(run.plan, "");
    check_memory_limit(run.plan, run.selection.groups, thread_count(), memory_limit);
    recompute(run, device, known, out.tolerance, observer, stop, out.verdict);
  }
  out.summary = summary_differences(request.results, out.tolerance);
  return out;
}

Json verification_json(const VerifyRequest& request, const Verification& verification) {
  const auto& [sample, verdict, summary, tolerance, unknown] = verification;
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
  return {{"results", request.results},
          {"seed", request.seed},
          {"ok", sample.ok},
          {"methods_in_python", unknown},
          {"cells_in_python", sample.unknown},
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
            {"differences", std::move(of_summary)}}},
          {"layer_records_not_computed_again", summary.layer_records}};
}

}  // namespace kvbench
