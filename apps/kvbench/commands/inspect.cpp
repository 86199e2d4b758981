#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cellfiles/cache_file.hpp"
#include "cli/index_list.hpp"
#include "commands.hpp"
#include "dump/dump.hpp"
#include "dump/head_choice.hpp"
#include "exit_codes.hpp"
#include "kernels/kernels.hpp"
#include "metrics/inspection.hpp"
#include "output/cache_document.hpp"
#include "output/inspection_document.hpp"
#include "output/log.hpp"
#include "output/progress.hpp"

namespace kvbench {
namespace {

constexpr Index kManyTokens = Index{1} << 31;

struct InspectOptions {
  std::string dump;
  bool json = false;
  bool quiet = false;
  HeadChoice choice;
  InspectionOptions inspection;
};

constexpr const char* kInspectFooter = R"(For every layer and KV head:
  norms of q, k, v          quantiles; r = max ||scale q|| of SubGen's theorem
  srank                     stable rank ||V||_F^2 / ||V||_op^2
  delta, delta r            delta is given as a quantile of distances between keys
  m'(delta)                 clusters of SubGen's streaming rule, for keys and values
  covering radius           of k farthest-first centres, for keys and values
  attention                 entropy, sparsity, mass of the top x % of tokens
--json adds quantiles, curves, centres and a `definitions` object that explains each name.
For a cache file: per KV head the number of rows and of different tokens, their weights and lifetimes.

Examples:
  kvbench inspect data/smollm2-constitution.h5
  kvbench inspect data/smollm2-constitution.h5 --layers 0,15 --kv-heads 0
  kvbench inspect data/smollm2-constitution.h5 --json > inspection.json
  kvbench inspect kept.h5                       # a cache file)";

Json inspect(const InspectOptions& options) {
  const Dump dump(options.dump);
  const DumpInfo& info = dump.info();
  const std::vector<ChosenHead> heads = choose_heads(info, options.choice);
  StatusLine progress(options.quiet);
  progress.show("inspect: reading");
  Json document = inspection_document(info, dump.fingerprint(), options.inspection);

  log_notes(dump.notes());

  const SequenceInfo* sequence = nullptr;
  const LayerInfo* layer = nullptr;
  for (std::size_t k = 0; k < heads.size(); ++k) {
    const ChosenHead& head = heads[k];
    progress.show(fmt::format("inspect: sequence {}, layer {}, KV head {} ({} of {})",
                              head.sequence->name, head.layer->index, head.kv_head, k + 1,
                              heads.size()));
    Json& sequences = document["sequences"];
    if (head.sequence != sequence) {
      sequences.push_back(sequence_document(*head.sequence));
      sequence = head.sequence;
    }
    Json& layers = sequences.back()["layers"];
    if (head.layer != layer) {
      layers.push_back(layer_document(*head.layer));
      layer = head.layer;
    }
    if (head.layer->kv_layer) continue;  // its heads are those of the layer that it reads
    const std::unique_ptr<StreamData> data =
        dump.read_stream(head.sequence->name, head.layer->index, head.kv_head);
    const StreamInspection inspection =
        inspect_stream(data->stream, cpu_kernels(), options.inspection);
    layers.back()["heads"].push_back(head_document(head.kv_head, data->stream.shape, inspection));
  }
  return document;
}

int run(const InspectOptions& options) {
  const bool is_cache = is_cache_file(options.dump);  // its options do not select from it
  const Json document = is_cache ? cache_document(*open_cache(options.dump)) : inspect(options);
  if (options.json) {
    print_json(document, 1);
  } else if (is_cache) {
    print_cache(document);
  } else {
    print_inspection(document);
  }
  return kExitDone;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the contents of a dump and statistics of its tensors, or of a cache file");
  command->add_option("DUMP", options->dump, "Dump or cache file (HDF5)")->required();
  command->add_flag("--json", options->json, "Write one JSON document to stdout");
  command
      ->add_option("--sequences", options->choice.sequences,
                   "Only these sequences, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_indices(*command, "--layers", options->choice.layers, "Only these layers, such as 0-7,15");
  add_indices(*command, "--kv-heads", options->choice.kv_heads, "Only these KV heads, such as 0-3");
  InspectionOptions& inspection = options->inspection;
  command
      ->add_option("--rows", inspection.attention_rows,
                   "Attention statistics over the last N stored query rows")
      ->check(CLI::Range(Index{1}, kManyTokens))
      ->capture_default_str();
  command
      ->add_option("--clustering-tokens", inspection.clustering_tokens,
                   "Clusters and centres of the first N tokens")
      ->check(CLI::Range(Index{1}, kManyTokens))
      ->capture_default_str();
  command->add_option("--centers", inspection.centers, "Covering radius of up to N centres")
      ->check(CLI::Range(Index{1}, kManyTokens))
      ->capture_default_str();
  command
      ->add_option("--delta-quantiles", inspection.delta_quantiles,
                   "Radii of the m'(delta) curves, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--quiet", options->quiet, "No progress on stderr");
  command->footer(kInspectFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
