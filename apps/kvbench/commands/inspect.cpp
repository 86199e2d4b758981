#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cellfiles/cache_file.hpp"
#include "commands.hpp"
#include "dump/dump.hpp"
#include "exit_codes.hpp"
#include "kernels/kernels.hpp"
#include "metrics/inspection.hpp"
#include "output/cache_document.hpp"
#include "output/inspection_document.hpp"
#include "output/log.hpp"
#include "output/progress.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr Index kManyTokens = Index{1} << 31;

struct InspectOptions {
  std::string dump;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> sequences;
  std::vector<int> layers;
  std::vector<int> kv_heads;
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

// One (layer, KV head) to look at.
struct Place {
  const SequenceInfo* sequence;
  const LayerInfo* layer;
  int kv_head;
};

template <class T>
bool selected(const std::vector<T>& wanted, const T& value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

// Ascending by sequence, layer, head. A wanted name that nothing answers to is an error; where a
// sequence or layer has an error, what is wanted of it is looked for in all of them.
std::vector<Place> find_places(const DumpInfo& info, const InspectOptions& options) {
  std::set<std::string> sequences;
  for (const SequenceInfo& sequence : info.sequences) sequences.insert(sequence.name);
  ErrorList errors;
  for (const std::string& name : options.sequences) {
    if (sequences.count(name) != 0) continue;
    errors.add(fmt::format("{}: --sequences {}: no such sequence; the dump has {}", info.path, name,
                           fmt::join(sequences, ", ")));
  }

  std::vector<std::pair<const SequenceInfo*, const LayerInfo*>> layers;
  std::set<int> indices;
  const bool any_sequence = !errors.none();
  for (const SequenceInfo& sequence : info.sequences) {
    if (!any_sequence && !selected(options.sequences, sequence.name)) continue;
    for (const LayerInfo& layer : sequence.layers) {
      layers.emplace_back(&sequence, &layer);
      indices.insert(layer.index);
    }
  }
  bool any_layer = false;
  for (const int layer : options.layers) {
    if (indices.count(layer) != 0) continue;
    any_layer = true;
    errors.add(fmt::format("{}: --layers {}: no such layer; the dump has {}", info.path, layer,
                           fmt::join(indices, ", ")));
  }

  std::vector<Place> places;
  Index kv_heads = 0;
  for (const auto& [sequence, layer] : layers) {
    if (!any_layer && !selected(options.layers, layer->index)) continue;
    kv_heads = std::max(kv_heads, layer->kv_heads);
    for (int head = 0; head < static_cast<int>(layer->kv_heads); ++head) {
      if (selected(options.kv_heads, head)) places.push_back({sequence, layer, head});
    }
  }
  for (const int head : options.kv_heads) {
    if (head >= 0 && head < kv_heads) continue;
    errors.add(fmt::format("{}: --kv-heads {}: no such KV head; the layer has 0 to {}", info.path,
                           head, kv_heads - 1));
  }
  errors.throw_if_any();
  return places;
}

Json inspect(const InspectOptions& options) {
  const Dump dump(options.dump);
  const DumpInfo& info = dump.info();
  const std::vector<Place> places = find_places(info, options);
  StatusLine progress(options.quiet);
  progress.show("inspect: reading");
  Json document = inspection_document(info, dump.fingerprint(), options.inspection);

  log_notes(dump.notes());

  const SequenceInfo* sequence = nullptr;
  const LayerInfo* layer = nullptr;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const Place& place = places[k];
    progress.show(fmt::format("inspect: sequence {}, layer {}, KV head {} ({} of {})",
                              place.sequence->name, place.layer->index, place.kv_head, k + 1,
                              places.size()));
    Json& sequences = document["sequences"];
    if (place.sequence != sequence) {
      sequences.push_back(sequence_document(*place.sequence));
      sequence = place.sequence;
    }
    Json& layers = sequences.back()["layers"];
    if (place.layer != layer) {
      layers.push_back(layer_document(*place.layer));
      layer = place.layer;
    }
    if (place.layer->kv_layer) continue;  // its heads are those of the layer that it reads
    const std::unique_ptr<StreamData> data =
        dump.read_stream(place.sequence->name, place.layer->index, place.kv_head);
    const StreamInspection inspection =
        inspect_stream(data->stream, cpu_kernels(), options.inspection);
    layers.back()["heads"].push_back(head_document(place.kv_head, data->stream.shape, inspection));
  }
  return document;
}

// Options that select from a dump do not apply to a cache file.
int inspect_cache(const InspectOptions& options) {
  const Json document = cache_document(*open_cache(options.dump));
  if (options.json) {
    print_json(document, 1);
  } else {
    print_cache(document);
  }
  return kExitDone;
}

int run(const InspectOptions& options) {
  if (is_cache_file(options.dump)) return inspect_cache(options);
  const Json document = inspect(options);
  if (options.json) {
    print_json(document, 1);
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
      ->add_option("--sequences", options->sequences, "Only these sequences, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--layers", options->layers, "Only these layers, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--kv-heads", options->kv_heads, "Only these KV heads, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
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
