#include "dump/kv_layer.hpp"

#include <algorithm>

#include "hdf5/structure_errors.hpp"

namespace kvbench {
namespace {

bool turn_equally(const LayerInfo& a, const LayerInfo& b) {
  if (a.rope == b.rope) return true;
  return a.rope && b.rope && a.rope->inv_freq == b.rope->inv_freq &&
         a.rope->interleaved == b.rope->interleaved;
}

// The first thing in which a reader may not differ from the layer that it reads; null: none.
const char* disagreement(const LayerInfo& reader, const LayerInfo& read) {
  if (reader.d != read.d) return "d, the last dimension of q and k";
  if (reader.query_rows != read.query_rows) return "the number of query rows";
  if (reader.scale != read.scale) return "scale";
  if (reader.window != read.window) return "sliding_window";
  if (reader.softcap != read.softcap) return "logit_softcap";
  if (reader.chunk != read.chunk) return "chunk";
  if (reader.causal != read.causal) return "causal";
  if (reader.sinks.empty() != read.sinks.empty()) return "having sinks";
  if (reader.alibi_slopes.empty() != read.alibi_slopes.empty()) return "having alibi_slopes";
  if (reader.wo_v_l1 != read.wo_v_l1) return "having wo_v_l1";
  if (reader.wo_v_l1 && reader.tokens != read.tokens) return "the tokens of wo_v_l1";
  if (!turn_equally(reader, read)) return "rope";
  return nullptr;
}

}  // namespace

void join_kv_layers(ErrorList& errors, const std::string& location, SequenceInfo& sequence) {
  for (LayerInfo& reader : sequence.layers) {
    if (!reader.kv_layer || reader.query_heads == 0) continue;  // or its own errors are reported
    const std::string place = join(join(location, "layers"), std::to_string(reader.index));
    const auto found =
        std::find_if(sequence.layers.begin(), sequence.layers.end(),
                     [&](const LayerInfo& layer) { return layer.index == *reader.kv_layer; });
    if (found == sequence.layers.end()) {
      add(errors, place,
          "attribute kv_layer is {}, and the sequence has no such layer; dump it, too",
          *reader.kv_layer);
      continue;
    }
    LayerInfo& read = *found;
    if (read.kv_layer) {
      add(errors, place,
          "attribute kv_layer is {}, a layer that reads another one's keys itself; name the layer "
          "that has k and v",
          *reader.kv_layer);
      continue;
    }
    if (read.kv_heads == 0) continue;  // its errors are reported
    if (const char* what = disagreement(reader, read)) {
      add(errors, place,
          "disagrees in {} with layer {}, whose keys it reads; layers of one cache have it in "
          "common, leave this layer out",
          what, read.index);
      continue;
    }
    if (reader.query_heads % read.kv_heads != 0) {
      add(errors, place, "{} query heads are not a multiple of the {} KV heads of layer {}",
          reader.query_heads, read.kv_heads, read.index);
      continue;
    }
    if (reader.out_rows > read.tokens || (reader.out_rows > 0 && reader.dv != read.dv)) {
      add(errors, place, "out disagrees with v of layer {} in tokens or in dv, the last dimension",
          read.index);
      continue;
    }
    if (read.repeat_rows > 0) {
      add(errors, place,
          "reads the keys of layer {}, which has a pass that repeats the prompt; leave q_repeat "
          "and "
          "k_repeat out, or this layer",
          read.index);
      continue;
    }
    reader.kv_heads = read.kv_heads;
    reader.tokens = read.tokens;
    reader.dv = read.dv;
    reader.dtype = read.dtype;
    reader.coarsest = coarser(reader.coarsest, read.coarsest);
    reader.value_in_key = read.value_in_key;
    read.chunk_bytes += reader.chunk_bytes;
    read.readers.push_back(reader.index);
    read.further_query_heads += reader.query_heads;
  }
}

}  // namespace kvbench
