#include "run/open_dumps.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "dump/cache_file.hpp"

namespace kvbench {
namespace {

PlannedDump describe(const Dump& dump) {
  const DumpInfo& info = dump.info();
  PlannedDump out;
  out.path = std::filesystem::absolute(info.path).lexically_normal();
  out.fingerprint = dump.fingerprint();
  out.model = info.model;
  out.n_layers = info.n_layers;
  for (const SequenceInfo& sequence : info.sequences) {
    PlannedSequence& planned = out.sequences.emplace_back();
    planned.name = sequence.name;
    planned.prompt_tokens = sequence.prompt_tokens;
    planned.evidence = sequence.evidence;
    for (const LayerInfo& layer : sequence.layers) {
      planned.layers.push_back({.index = layer.index,
                                .kv_heads = static_cast<int>(layer.kv_heads),
                                .shape = stream_shape(info, layer),
                                .chunk_bytes = layer.chunk_bytes,
                                .hidden = layer.hidden,
                                .wo_chunk_bytes = layer.wo_chunk_bytes,
                                .residual_rows = layer.residual_rows});
    }
  }
  return out;
}

}  // namespace

OpenDumps open_dumps(SweepConfig& config, const DumpOptions& options) {
  OpenDumps out;
  ErrorList errors;
  for (const std::string& path : config.dumps) {
    errors.gather([&] {
      Dump dump(path, options);
      out.planned.push_back(describe(dump));
      out.dumps.push_back(std::move(dump));
    });
  }
  std::vector<std::shared_ptr<const KeptCache>> caches;
  for (const std::string& path : config.cache_paths()) {
    errors.gather([&] { caches.push_back(open_cache(path, options)); });
  }
  config.set_caches(caches);
  if (errors.none()) return out;
  ErrorList all;
  all.add_all(config.errors);
  all.add_all(errors.messages());
  throw InputError(all.messages());
}

}  // namespace kvbench
