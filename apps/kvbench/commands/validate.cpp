#include <fmt/core.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cellfiles/cache_file.hpp"
#include "commands.hpp"
#include "dump/dump.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"
#include "output/stored_outputs_table.hpp"
#include "run/open_dumps.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct ValidateOptions {
  std::string dump;
  std::string config;
  std::string cache_of;  // the dump of a cache file
  std::optional<double> tolerance;
};

constexpr const char* kValidateFooter =
    R"(Prints, for every layer that holds `out`, the largest ||z - out|| / ||out|| over its rows and
query heads, z being exact attention of the stored q, k and v with the stored scale, window and
soft-cap. A wrong scale, mask, head order or rotation gives a difference far above rounding. Rounding
is that of the coarsest type among q, k, v and out: about 1e-6 in float32, 1e-3 in float16 and 1e-2 in
bfloat16. With 16 bits the scale that fits all outputs best is estimated, too, and must be the stored
one. Layers without `out` are read through for numbers that are not finite, and named on stderr as not
compared. Exit code 4 if a layer exceeds the tolerance; 2 for a dump without `out`, or with such a number.
For a cache file, the rows are checked; with --dump also whether that dump has such heads, tokens and lengths.

Examples:
  kvbench validate data/smollm2-constitution.h5
  kvbench validate --config configs/quick.json
  kvbench validate kept.h5 --dump data/smollm2-constitution.h5   # a cache file)";

int validate_dump(const ValidateOptions& options) {
  const Dump dump(options.dump);
  const StoredOutputs found = print_stored_outputs(dump, options.tolerance);
  if (found.compared == 0) {
    throw InputError(options.dump +
                     ": no layer has out, the model's own attention output, so there is nothing "
                     "to compare with; dump it for the last few rows");
  }
  log_uncompared(found, options.dump);
  log_notes(dump.notes());
  const std::string allowed = options.tolerance
                                  ? fmt::format("the tolerance {:g}", *options.tolerance)
                                  : fmt::format("the rounding of {}", element_name(found.type));
  if (found.agrees) {
    log_text("{}: ok, largest relative difference {:.3e} (within {})\n", options.dump, found.most,
             allowed);
    return kExitDone;
  }
  if (found.scales.empty()) {
    const bool may_be_rounded =
        element_bytes(found.type) == 2 && found.most < 0.1 && !options.tolerance;
    log_text(
        "{}: largest relative difference {:.3e} exceeds {}, and no scale mends it; check "
        "sliding_window, logit_softcap, sinks, mask, head order and rotation, and the scale{}\n",
        options.dump, found.most, allowed,
        may_be_rounded ? fmt::format("; where q, k and v were rounded after attention used them, "
                                     "--tolerance {:.1g} allows it",
                                     2.0 * found.most)
                       : "");
  } else {
    log_text(
        "{}: largest relative difference {:.3e}: the scale is not that of out; store the one "
        "that fits (sequence/layer {})\n",
        options.dump, found.most, fmt::join(found.scales, "; "));
  }
  return kExitViolation;
}

int validate_cache(const ValidateOptions& options) {
  const auto cache = open_cache(options.dump);
  if (options.cache_of.empty()) {
    print_text("{}: ok, rows of {} KV heads; --dump DUMP checks them against a dump\n",
               options.dump, cache->heads.size());
    return kExitDone;
  }
  require_heads_of(*cache, options.cache_of);
  print_text("{}: ok, rows of {} KV heads of {}\n", options.dump, cache->heads.size(),
             options.cache_of);
  return kExitDone;
}

int validate_config(const std::string& path) {
  SweepConfig config = read_sweep(path, {}, all_algorithms(), ErrorPolicy::kKeep);
  OpenDumps dumps = open_dumps(config);
  const Plan plan = make_plan(config, std::move(dumps.planned));
  print_text("{}: ok, {} cells\n", path, plan.cells.size());
  return kExitDone;
}

int run(const ValidateOptions& options) {
  if (options.dump.empty() == options.config.empty()) {
    throw InputError("kvbench validate: expected either a dump or --config FILE");
  }
  if (std::filesystem::path(options.dump).extension() == ".json") {
    throw InputError(
        fmt::format("{}: dumps are HDF5 files; to check a sweep file: kvbench validate --config {}",
                    options.dump, options.dump));
  }
  if (options.tolerance && !(*options.tolerance >= 0.0)) {
    throw InputError(fmt::format("--tolerance: must be >= 0, got {}", *options.tolerance));
  }
  if (!options.config.empty()) return validate_config(options.config);
  if (is_cache_file(options.dump)) return validate_cache(options);
  if (!options.cache_of.empty()) {
    throw InputError("--dump: goes with a cache file, and " + options.dump +
                     " is not one; leave it out");
  }
  return validate_dump(options);
}

}  // namespace

Command add_validate(CLI::App& app) {
  const auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand(
      "validate",
      "Recompute the attention outputs that a dump stores, or check a sweep or a cache file");
  command->add_option("DUMP", options->dump, "Dump or cache file (HDF5)");
  command->add_option("-c,--config", options->config, "Sweep file (JSON) to check instead");
  command->add_option("--dump", options->cache_of, "Dump that the rows of a cache file belong to")
      ->type_name("DUMP");
  command->add_option("--tolerance", options->tolerance,
                      "Largest relative difference that passes (default: 1e-4, and rounding)");
  command->footer(kValidateFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
