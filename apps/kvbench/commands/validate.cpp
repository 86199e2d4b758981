#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cellfiles/cache_file.hpp"
#include "commands.hpp"
#include "dump/dump.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"
#include "run/open_dumps.hpp"
#include "run/stored_outputs.hpp"
#include "sweep/config.hpp"
#include "sweep/plan.hpp"
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

struct LargestDifference {
  std::size_t compared = 0;  // layers that hold out
  double most = 0.0;
  bool agrees = true;
  ElementType type = ElementType::kFloat64;  // the coarsest whose rounding was allowed
  std::vector<std::string> scales;           // what is told of a scale that fits
  std::vector<std::string> without_out;      // sequence/layer

  void add(const OutputDifference& layer, const std::string& name, double stored_scale) {
    ++compared;
    most = larger_difference(most, layer.most);
    type = coarser(type, layer.type);
    if (layer.agrees()) return;
    agrees = false;
    if (layer.fitting_scale) {
      scales.push_back(fmt::format("{}: out fits a scale of {:.4g}, and {:.4g} is stored", name,
                                   *layer.fitting_scale, stored_scale));
    }
  }
};

const char* verdict(const OutputDifference& layer) {
  if (layer.agrees()) return "";
  return layer.excess > 1.0 ? "  above tolerance" : "  within rounding, of another scale";
}

// One line of the table per layer that holds `out`; InputError, all errors of the dump at once.
LargestDifference compare_layers(const Dump& dump, std::optional<double> tolerance) {
  LargestDifference found;
  ErrorList errors;
  for (const SequenceInfo& sequence : dump.info().sequences) {
    for (const LayerInfo& layer : sequence.layers) {
      errors.gather([&] {
        if (layer.residual_rows > 0) dump.read_residual_norms(sequence.name, layer.index);
        for (int head = 0; layer.hidden > 0 && head < static_cast<int>(layer.query_heads); ++head) {
          dump.read_wo(sequence.name, layer.index, head);
        }
        const Index rows = std::min(layer.out_rows, layer.query_rows);
        if (rows == 0) {
          read_through(dump, sequence.name, layer);
          found.without_out.push_back(fmt::format("{}/{}", sequence.name, layer.index));
          return;
        }
        const OutputDifference difference =
            output_difference(dump, sequence.name, layer, rows, tolerance);
        if (found.compared == 0) {
          print_text("{:<24} {:>5} {:>5}  {}\n", "sequence", "layer", "rows", "difference");
        }
        print_text("{:<24} {:>5} {:>5}  {:.3e}{}\n", sequence.name, layer.index, rows,
                   difference.most, verdict(difference));
        found.add(difference, fmt::format("{}/{}", sequence.name, layer.index), layer.scale);
      });
    }
  }
  errors.throw_if_any();
  return found;
}

void log_uncompared(const LargestDifference& found, const std::string& dump) {
  constexpr std::size_t kShown = 20;
  const std::vector<std::string>& layers = found.without_out;
  if (layers.empty()) return;
  const auto end = layers.begin() + static_cast<std::ptrdiff_t>(std::min(layers.size(), kShown));
  log_text("{}: {} of {} layers have no out and were not compared (sequence/layer): {}{}\n", dump,
           layers.size(), layers.size() + found.compared, fmt::join(layers.begin(), end, ", "),
           layers.size() > kShown ? ", .." : "");
}

int validate_dump(const ValidateOptions& options) {
  const Dump dump(options.dump);
  const LargestDifference found = compare_layers(dump, options.tolerance);
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
    log_text(
        "{}: largest relative difference {:.3e} exceeds {}, and no scale mends it; check "
        "sliding_window, logit_softcap, sinks, mask, head order and rotation, and the scale\n",
        options.dump, found.most, allowed);
  } else {
    log_text(
        "{}: largest relative difference {:.3e}: the scale is not that of out; store the one "
        "that fits (sequence/layer {})\n",
        options.dump, found.most, fmt::join(found.scales, "; "));
  }
  return kExitViolation;
}

// Whether the rows are of streams that the dump has; each head must be one of its.
void check_against_dump(const KeptCache& cache, const std::string& path) {
  const Dump dump(path);
  ErrorList errors;
  if (!cache.dump.empty() && cache.dump != dump.fingerprint()) {
    throw InputError(fmt::format("{}: is of another dump, with fingerprint {}; name that one",
                                 cache.path, cache.dump));
  }
  for (const KeptHead& head : cache.heads) {
    const auto refuse = [&](const std::string& what) {
      errors.add(fmt::format("{}: sequence {}, layer {}, KV head {}: {}", cache.path, head.sequence,
                             head.layer, head.kv_head, what));
    };
    const SequenceInfo* sequence = dump.info().find_sequence(head.sequence);
    const LayerInfo* layer = sequence == nullptr ? nullptr : sequence->find_layer(head.layer);
    if (layer == nullptr || head.kv_head >= layer->kv_heads) {
      refuse(path + " has no such head");
      continue;
    }
    // Made for fewer tokens, the rows are of select.tokens.
    const Index tokens = std::min(head.tokens.value_or(layer->tokens), layer->tokens);
    if (const auto why = misfit(head, stream_shape(dump.info(), *layer, tokens), head.prompt)) {
      refuse(*why);
    }
  }
  errors.throw_if_any();
}

int validate_cache(const ValidateOptions& options) {
  const auto cache = open_cache(options.dump);
  if (options.cache_of.empty()) {
    print_text("{}: ok, rows of {} KV heads; --dump DUMP checks them against a dump\n",
               options.dump, cache->heads.size());
    return kExitDone;
  }
  check_against_dump(*cache, options.cache_of);
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
                      "Largest relative difference that passes (default: 1e-4 and the rounding of "
                      "the stored types)");
  command->footer(kValidateFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
