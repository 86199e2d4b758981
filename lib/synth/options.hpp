// The options of a synthetic dump.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

struct SynthOptions {
  std::string kind;  // one of synth_kinds()
  Index tokens = 2048;
  int sequences = 1;  // named "0", "1", ..
  int layers = 1;
  Index kv_heads = 2;
  Index heads_per_kv = 2;  // query heads per KV head
  Index d = 64;
  Index dv = 0;          // 0: d
  Index query_rows = 0;  // queries of the last N positions, 0: of all
  Index out_rows = 64;   // at most; exact attention of the last rows, 0: no `out`
  std::optional<Index> prompt_tokens;
  std::uint32_t seed = 0;
  std::string dtype = "float16";
  std::optional<double> scale;  // default 1 / sqrt(d)
  Index window = 0;             // sliding window, 0 = none
  double softcap = 0.0;
  std::optional<double> sinks;  // sink logits, normal about this mean, one per query head
  bool alibi = false;           // slopes 2^(-8 (h + 1) / Hq) of query heads h
  bool causal = true;           // false: every row sees every token
  Index chunk = 0;              // tokens of a chunk, 0 = none
  bool value_in_key = false;    // values are the first dv columns of keys
  // m: planted clusters, content vectors of rope, heavy tokens. 0: 16, or n if that is less.
  Index clusters = 0;
  double delta = 1.0;           // clusterable, focused: the diameter that no cluster exceeds
  double theta = 10000.0;       // rope
  Index hidden = 0;             // columns of an output projection; 0: none, and no residual norms
  std::vector<Index> evidence;  // first and last token of a span, by turns; empty: none
  Index repeat = 0;             // tokens of a part of a pass that repeats the prompt; 0: no pass
  int gzip = 0;
  Index chunk_rows = 0;
};

}  // namespace kvbench
