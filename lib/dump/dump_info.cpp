#include "dump/dump_info.hpp"

#include <algorithm>

namespace kvbench {

const LayerInfo* SequenceInfo::find_layer(int index) const {
  for (const LayerInfo& layer : layers) {
    if (layer.index == index) return &layer;
  }
  return nullptr;
}

const SequenceInfo* DumpInfo::find_sequence(const std::string& name) const {
  for (const SequenceInfo& sequence : sequences) {
    if (sequence.name == name) return &sequence;
  }
  return nullptr;
}

StreamShape stream_shape(const DumpInfo& dump, const LayerInfo& layer, Index tokens) {
  StreamShape shape;
  shape.tokens = tokens == 0 ? layer.tokens : tokens;
  shape.d = layer.d;
  shape.dv = layer.dv;
  shape.heads_per_kv =
      static_cast<int>((layer.query_heads + layer.further_query_heads) / layer.kv_heads);
  shape.first_query = std::min(layer.tokens - layer.query_rows, shape.tokens);
  shape.window = layer.window;
  shape.scale = layer.scale;
  shape.softcap = layer.softcap;
  shape.n_layers = dump.n_layers;
  shape.rope = layer.rope;
  shape.wo_v_l1 = layer.wo_v_l1;
  shape.hidden = layer.readers.empty() ? layer.hidden : 0;
  shape.repeat = layer.repeat;
  shape.chunk = layer.chunk;
  shape.causal = layer.causal;
  shape.sinks = !layer.sinks.empty();
  shape.alibi = !layer.alibi_slopes.empty();
  shape.value_in_key = layer.value_in_key;
  shape.key_bias = !layer.key_bias.empty();
  return shape;
}

}  // namespace kvbench
