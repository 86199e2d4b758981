#include "dump/head_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "system/error.hpp"

namespace kvbench {
namespace {

template <class T>
bool selected(const std::vector<T>& wanted, const T& value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

}  // namespace

std::vector<ChosenHead> choose_heads(const DumpInfo& info, const HeadChoice& choice) {
  std::set<std::string> sequences;
  for (const SequenceInfo& sequence : info.sequences) sequences.insert(sequence.name);
  ErrorList errors;
  for (const std::string& name : choice.sequences) {
    if (sequences.count(name) != 0) continue;
    errors.add(fmt::format("{}: --sequences {}: no such sequence; the dump has {}", info.path, name,
                           fmt::join(sequences, ", ")));
  }

  std::vector<std::pair<const SequenceInfo*, const LayerInfo*>> layers;
  std::set<int> indices;
  const bool any_sequence = !errors.none();
  for (const SequenceInfo& sequence : info.sequences) {
    if (!any_sequence && !selected(choice.sequences, sequence.name)) continue;
    for (const LayerInfo& layer : sequence.layers) {
      layers.emplace_back(&sequence, &layer);
      indices.insert(layer.index);
    }
  }
  bool any_layer = false;
  for (const int layer : choice.layers) {
    if (indices.count(layer) != 0) continue;
    any_layer = true;
    errors.add(fmt::format("{}: --layers {}: no such layer; the dump has {}", info.path, layer,
                           fmt::join(indices, ", ")));
  }

  std::vector<ChosenHead> heads;
  Index kv_heads = 0;
  for (const auto& [sequence, layer] : layers) {
    if (!any_layer && !selected(choice.layers, layer->index)) continue;
    kv_heads = std::max(kv_heads, layer->kv_heads);
    for (int head = 0; head < static_cast<int>(layer->kv_heads); ++head) {
      if (selected(choice.kv_heads, head)) heads.push_back({sequence, layer, head});
    }
  }
  for (const int head : choice.kv_heads) {
    if (head >= 0 && head < kv_heads) continue;
    errors.add(fmt::format("{}: --kv-heads {}: no such KV head; the layer has 0 to {}", info.path,
                           head, kv_heads - 1));
  }
  errors.throw_if_any();
  return heads;
}

}  // namespace kvbench
