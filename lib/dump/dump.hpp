// Reading dumps: HDF5 files of per-layer Q/K/V tensors (format: data/FORMAT.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/evidence.hpp"
#include "core/stream.hpp"
#include "hdf5/element_type.hpp"
#include "numerics/aligned.hpp"

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

// A stream with the memory that its views point to.
struct StreamData {
  Stream stream;
  UnfilledDoubles keys;
  UnfilledDoubles values;
  std::vector<UnfilledDoubles> queries;
  std::vector<UnfilledDoubles> wo_v_l1;
  std::vector<UnfilledDoubles> repeat_queries;
  UnfilledDoubles repeat_keys;
};

struct DumpOptions {
  // Bytes that decoding a layer's chunks may take; 0: what the process may use.
  std::uint64_t memory_limit = 0;
  // Whether structure and fingerprint are first read in a child process (hdf5/first_reading.hpp).
  // Without it a damaged file can end this process inside HDF5: for files known to be whole, where
  // a process must not fork.
  bool first_in_child = true;
};

// The hashes of tensors by their path in the dump, as fingerprints of dumps "by tensor" have them.
using TensorHashes = std::map<std::string, std::string>;

// An open dump. Only what lies in the file itself is read: external links, external storage and
// virtual datasets are refused, and what is not a regular file.
// Every error of the file throws InputError naming file, dataset or attribute and the remedy;
// structural errors are all found by the constructor. Several threads may read, one waits for the
// other.
class Dump {
 public:
  explicit Dump(const std::string& path, const DumpOptions& options = {});
  // A dump in memory, made by this process; `name` is its path in messages. `image` is used in
  // place and must live as long. `hashes`: for an outline, whose tensors have shapes and no
  // elements; the fingerprint is that of the dump whose tensors have these hashes.
  Dump(const std::string& name, std::span<const std::byte> image, TensorHashes hashes = {});
  ~Dump();
  Dump(Dump&&) noexcept;
  Dump& operator=(Dump&&) noexcept;

  const DumpInfo& info() const;

  // Reads one KV head: keys, values and the queries of its group, first `tokens` positions (0 =
  // all). NaN and infinity throw InputError naming dataset, head and token. Holds nothing else. A
  // layer that others read comes with the queries of all, one that reads another with its own
  // alone.
  std::unique_ptr<StreamData> read_stream(const std::string& sequence, int layer, int kv_head,
                                          Index tokens = 0) const;

  // Takes a stream that nothing refers to any more: the next read_stream() reads into its memory.
  // The system fills each page that it gives with zeros, which takes longer than reading into it.
  void reuse(std::unique_ptr<StreamData> data) const;

  // The model's own output rows of one query head, [No, dv] for the last No positions.
  UnfilledDoubles read_out(const std::string& sequence, int layer, int query_head) const;

  // The output projection of one query head of a layer that has it, [dv, hidden].
  UnfilledDoubles read_wo(const std::string& sequence, int layer, int query_head) const;

  // The residual norms of a layer's last residual_rows positions; empty without them.
  std::vector<double> read_residual_norms(const std::string& sequence, int layer) const;

  // XXH3-128 of the content (attributes, shapes, tensors: all bytes below 1 GiB,
  // evenly spaced samples above), never of path or time. Non-finite elements met on the way throw
  // InputError.
  std::string fingerprint() const;

  // The hashes of all tensors that the fingerprint is made of, if it is "by tensor": of a dump in
  // memory, empty for others.
  TensorHashes tensor_hashes() const;

  // Notes on keys and values that a capture has more often than a model: equal KV heads, tokens of
  // zeros at the end, a layer with another one's (dump/layer_survey.hpp). Known from the
  // fingerprint, if that was asked for before; else from samples, and all of what they make
  // suspicious.
  std::vector<std::string> notes() const;

  // Where the fingerprint is of samples: size and time of the last change of the file, by which a
  // run that resumes sees that the dump is another one; else empty.
  std::string state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// To be called in a child that was forked while other threads might have read a dump: they are not
// there to end what they began. Dumps that were open must not be read in the child.
void renew_dumps_after_fork();

// The shape of one stream of a layer cut to its first `tokens` positions (0 = all).
StreamShape stream_shape(const DumpInfo& dump, const LayerInfo& layer, Index tokens = 0);

}  // namespace kvbench
