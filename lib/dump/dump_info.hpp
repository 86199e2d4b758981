// The content of a dump except the elements of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/evidence.hpp"
#include "core/stream.hpp"
#include "hdf5/element_type.hpp"

namespace kvbench {

// The layout of one layer, known without reading its tensors.
struct LayerInfo {
  int index = 0;  // the model's 0-based layer index
  Index query_heads = 0;
  Index kv_heads = 0;
  Index tokens = 0;      // n
  Index query_rows = 0;  // Nq: queries of the last Nq positions
  Index d = 0;
  Index dv = 0;
  std::string dtype;  // type of k: "float16", "bfloat16", "float32" or "float64"
  ElementType coarsest = ElementType::kFloat64;  // the largest roundoff among q, k and v
  ElementType out_type = ElementType::kFloat64;
  double scale = 1.0;  // multiplies <q, k>
  Index window = 0;    // sliding window, 0 = none
  double softcap = 0.0;
  Index out_rows = 0;                // rows of the stored model output, 0 = none
  std::shared_ptr<const Rope> rope;  // the layer's own or the dump's; null without
  bool wo_v_l1 = false;              // the 1-norms of W_O^T v per query head and token are stored
  Index chunk = 0;                   // tokens in a chunk, which rows see alone; 0 = none
  bool causal = true;                // false: every row sees every token
  bool value_in_key = false;         // values are the first dv columns of k, without v
  std::vector<double> sinks;         // [Hq] logits; empty: none
  std::vector<double> alibi_slopes;  // [Hq]; empty: none
  std::vector<double> key_bias;      // [Hkv, d] added to keys before RoPE; empty: not stored
  std::uint64_t chunk_bytes = 0;     // at most held to decode its chunks, besides what is returned
  Index hidden = 0;                  // columns of the output projection `wo`, 0 = not stored
  std::uint64_t wo_chunk_bytes = 0;  // at most held to decode its chunks
  Index residual_rows = 0;           // Nr: residual norms of the last Nr positions
  // The layer whose keys and values it reads: it has none of its own, and its query heads are
  // further ones of that layer's streams, after its own. `readers`: the layers that read this
  // one's.
  std::optional<int> kv_layer;
  std::vector<int> readers;
  Index further_query_heads = 0;
  Index repeat_rows = 0;                     // rows of q_repeat and k_repeat, 0 = not stored
  std::shared_ptr<const RepeatPass> repeat;  // the sequence's, if they are stored
};

struct SequenceInfo {
  std::string name;
  std::optional<Index> prompt_tokens;
  std::string description;
  std::shared_ptr<const Evidence> evidence;  // null without
  std::shared_ptr<const RepeatPass> repeat;  // null without
  std::vector<LayerInfo> layers;             // ascending by index

  const LayerInfo* find_layer(int index) const;
};

struct DumpInfo {
  std::string path;
  int format_version = 1;
  bool hashed_by_tensor = false;  // its attribute `fingerprint` is "by tensor"
  std::string model;
  std::string producer;
  int n_layers = 0;                                             // layers of the model
  std::vector<std::pair<std::string, std::string>> attributes;  // all root attributes, as text
  std::vector<SequenceInfo> sequences;                          // ascending by name

  const SequenceInfo* find_sequence(const std::string& name) const;
};

// The hashes of tensors by their path in the dump, as fingerprints of dumps "by tensor" have them.
using TensorHashes = std::map<std::string, std::string>;

// The shape of one stream of a layer cut to its first `tokens` positions (0 = all).
StreamShape stream_shape(const DumpInfo& dump, const LayerInfo& layer, Index tokens = 0);

}  // namespace kvbench
