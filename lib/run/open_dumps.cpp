#include "run/open_dumps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cellfiles/cache_file.hpp"
#include "cellfiles/calibration_file.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

PlannedDump describe(const Dump& dump) {
  const DumpInfo& info = dump.info();
  PlannedDump out;
  out.path = std::filesystem::absolute(info.path).lexically_normal();
  out.fingerprint = dump.fingerprint();
  out.state = dump.state();
  out.model = info.model;
  out.n_layers = info.n_layers;
  for (const SequenceInfo& sequence : info.sequences) {
    PlannedSequence& planned = out.sequences.emplace_back();
    planned.name = sequence.name;
    planned.prompt_tokens = sequence.prompt_tokens;
    planned.evidence = sequence.evidence;
    for (const LayerInfo& layer : sequence.layers) {
      if (layer.kv_layer) continue;  // its query heads are further ones of that layer
      planned.layers.push_back({.index = layer.index,
                                .kv_heads = static_cast<int>(layer.kv_heads),
                                .shape = stream_shape(info, layer),
                                .chunk_bytes = layer.chunk_bytes,
                                // W_O is another one for each layer that reads a cache.
                                .hidden = layer.readers.empty() ? layer.hidden : 0,
                                .wo_chunk_bytes = layer.wo_chunk_bytes,
                                .residual_rows = layer.readers.empty() ? layer.residual_rows : 0});
    }
  }
  return out;
}

bool has_head(const PlannedDump& dump, const KeptHead& head) {
  return std::any_of(
      dump.sequences.begin(), dump.sequences.end(), [&](const PlannedSequence& sequence) {
        return sequence.name == head.sequence &&
               std::any_of(sequence.layers.begin(), sequence.layers.end(),
                           [&](const PlannedLayer& layer) {
                             return layer.index == head.layer && head.kv_head < layer.kv_heads;
                           });
      });
}

// The note that some rows of the file are of heads that no dump has; nullopt if every head is
// there, or if the file names another dump, which is why its cells are skipped.
std::optional<std::string> unused_heads(const KeptCache& cache,
                                        const std::vector<PlannedDump>& dumps) {
  const auto is_of = [&](const PlannedDump& dump) {
    return cache.dump.empty() || cache.dump == dump.fingerprint;
  };
  if (std::none_of(dumps.begin(), dumps.end(), is_of)) return std::nullopt;
  const KeptHead* first = nullptr;
  std::size_t count = 0;
  for (const KeptHead& head : cache.heads) {
    const bool found = std::any_of(dumps.begin(), dumps.end(), [&](const PlannedDump& dump) {
      return is_of(dump) && has_head(dump, head);
    });
    if (found) continue;
    if (first == nullptr) first = &head;
    ++count;
  }
  if (first == nullptr) return std::nullopt;
  return fmt::format(
      "{}: rows of {} of {} KV heads are not used: no dump has such a head, first sequence {}, "
      "layer {}, KV head {}",
      cache.path, count, cache.heads.size(), first->sequence, first->layer, first->kv_head);
}

void open_calibrations(SweepConfig& config, const DumpOptions& options, ErrorList& errors) {
  std::vector<std::shared_ptr<const Calibration>> calibrations;
  for (const std::string& path : config.paths_of<Calibration>()) {
    errors.gather([&] { calibrations.push_back(open_calibration(path, options)); });
  }
  config.set_files(calibrations);
}

}  // namespace

OpenDumps open_dumps(SweepConfig& config, const DumpOptions& options) {
  OpenDumps out;
  ErrorList errors;
  for (const std::string& path : config.dumps) {
    if (errors.is_full()) break;
    errors.gather([&] {
      Dump dump(path, options);
      out.planned.push_back(describe(dump));
      for (std::string& note : dump.notes()) out.notes.push_back(std::move(note));
      out.dumps.push_back(std::move(dump));
    });
  }
  std::vector<std::shared_ptr<const KeptCache>> caches;
  for (const std::string& path : config.paths_of<KeptCache>()) {
    errors.gather([&] { caches.push_back(open_cache(path, options)); });
  }
  config.set_files(caches);
  open_calibrations(config, options, errors);
  if (errors.none()) {
    for (const auto& cache : caches) {
      if (auto note = unused_heads(*cache, out.planned)) out.notes.push_back(std::move(*note));
    }
    return out;
  }
  ErrorList all;
  all.add_all(config.errors);
  all.add_all(errors.messages());
  throw InputError(all.messages());
}

OpenDumps described(Dump dump, SweepConfig& config) {
  OpenDumps out;
  ErrorList errors;
  open_calibrations(config, {}, errors);
  errors.throw_if_any();
  out.planned.push_back(describe(dump));
  out.notes = dump.notes();
  out.dumps.push_back(std::move(dump));
  return out;
}

void require_heads_of(const KeptCache& cache, const std::string& path) {
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

}  // namespace kvbench
