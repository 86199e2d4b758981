// One stream: the keys and values of one KV head of one layer of one sequence, with the queries of
// its group. This is what every algorithm is replayed on.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/repeat.hpp"
#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

struct StreamId {
  std::string sequence;
  int layer = 0;    // the model's 0-based layer index
  int kv_head = 0;  // 0-based

  // Identity for random draws; independent of paths, lengths and everything else.
  std::uint64_t hash() const;
};

// Rotary position embedding: pair p of the first 2 * inv_freq.size() dimensions turns by
// position * inv_freq[p].
struct Rope {
  std::vector<double> inv_freq;  // [d_rot / 2]
  bool interleaved = false;      // pairs (2p, 2p + 1); else (p, p + d_rot / 2)
};

// Facts of a stream known without reading its tensors: enough to plan.
struct StreamShape {
  Index tokens = 0;                  // n
  Index d = 0;                       // key and query dimension
  Index dv = 0;                      // value dimension
  int heads_per_kv = 1;              // G = query heads per KV head
  Index first_query = 0;             // queries are stored for rows [first_query, n)
  Index window = 0;                  // sliding window W in tokens, 0 = none
  Index chunk = 0;                   // tokens of a chunk, beyond which no row sees; 0 = none
  bool causal = true;                // false: every row sees every token
  double scale = 1.0;                // multiplies <q, k>
  double softcap = 0.0;              // logit soft-cap, 0 = none
  int n_layers = 1;                  // layers of the model
  std::shared_ptr<const Rope> rope;  // null if the dump holds no RoPE data
  bool wo_v_l1 = false;              // whether the dump holds Stream::wo_v_l1
  Index hidden = 0;                  // columns of Stream::output_projection, 0 = not held
  // Pass of Stream::repeat_queries and repeat_keys; null if the dump does not hold them.
  std::shared_ptr<const RepeatPass> repeat;
  bool sinks = false;         // whether there are Stream::sinks
  bool alibi = false;         // whether there are Stream::alibi_slopes
  bool value_in_key = false;  // values are the first dv numbers of the keys
  bool key_bias = false;      // whether there is Stream::key_bias

  // The most tokens that a row sees.
  Index reach() const {
    const Index most = window > 0 ? window : chunk > 0 ? chunk : tokens;
    return most < tokens ? most : tokens;
  }
  // Whether tokens stop being seen: by a sliding window, or at the end of a chunk.
  bool slides() const { return reach() < tokens; }
  // Row i sees the tokens [first_visible(i), visible_end(i)). Both ascend with i.
  Index first_visible(Index i) const {
    if (chunk > 0) return i / chunk * chunk;
    return window > 0 && i >= window ? i - window + 1 : 0;
  }
  Index visible_end(Index i) const { return causal ? i + 1 : tokens; }
};

struct Stream {
  StreamId id;
  StreamShape shape;
  ConstMatrix keys;                  // [n, d]
  ConstMatrix values;                // [n, dv]
  std::vector<ConstMatrix> queries;  // G x [n - first_query, d]
  // G x [n]: 1-norms of what W_O makes of each value for a query head; empty if not held.
  std::vector<const double*> wo_v_l1;
  // Reads W_O of query head g, [dv, hidden]; empty if not held.
  std::function<UnfilledDoubles(int g)> output_projection;
  // Queries and keys of the pass in which the model repeats the prompt, part after part; row r of
  // a part is at position prompt + r, and sees the prompt and the part's rows up to itself.
  std::vector<ConstMatrix> repeat_queries;  // G x [repeat->rows(), d]
  ConstMatrix repeat_keys;                  // [repeat->rows(), d]
  // G: a logit that every row of a query head has besides those of its tokens, in its softmax
  // alone: of a sink without a value, which every method holds. Empty: none.
  std::vector<double> sinks;
  // G: slope (j - i) is added to the logit of row i and token j, after scale and soft-cap (ALiBi).
  // Empty: none.
  std::vector<double> alibi_slopes;
  // [d]: what the model adds to every key before RoPE turns it, in the units of `keys`. Empty:
  // unknown, or none.
  std::vector<double> key_bias;

  const double* query(int g, Index row) const { return queries[g].row(row - shape.first_query); }
  // Sink of query head g; -infinity without one, whose canonical_exp adds 0.
  double sink(int g) const {
    return sinks.empty() ? -std::numeric_limits<double>::infinity() : sinks[g];
  }
};

}  // namespace kvbench
