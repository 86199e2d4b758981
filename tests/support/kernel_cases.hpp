// Streams on which kernels of different tables are compared.
#pragma once

#include <vector>

#include "support/owned_stream.hpp"

namespace kvbench::test {

// A stream of some size and mask.
struct KernelCase {
  const char* name;
  StreamSpec spec;
};

// Sizes around those of tiles, and masks that end within them.
inline std::vector<KernelCase> kernel_cases() {
  return {
      {"one token", {.tokens = 1, .d = 1, .dv = 1}},
      {"two tokens, d = 3", {.tokens = 2, .d = 3, .dv = 5, .heads_per_kv = 3}},
      {"597 tokens, d = 43", {.tokens = 597, .d = 43, .dv = 41}},
      {"d = 256, nine heads", {.tokens = 131, .d = 256, .dv = 256, .heads_per_kv = 9}},
      {"sliding window 17", {.tokens = 100, .d = 7, .dv = 9, .heads_per_kv = 3, .window = 17}},
      {"sliding window 1", {.tokens = 20, .d = 4, .dv = 4, .window = 1}},
      {"window over tiles", {.tokens = 700, .d = 5, .dv = 6, .heads_per_kv = 2, .window = 300}},
      {"window as long as the stream", {.tokens = 33, .d = 4, .dv = 4, .window = 33}},
      {"cap", {.tokens = 65, .d = 16, .dv = 8, .heads_per_kv = 2, .softcap = 2.0, .query_size = 3}},
      {"cap of 1e3", {.tokens = 70, .d = 6, .softcap = 1e3, .kind = StreamKind::kHugeLogits}},
      {"soft-cap and window", {.tokens = 290, .d = 5, .dv = 6, .window = 31, .softcap = 30.0}},
      {"huge logits", {.tokens = 70, .d = 12, .dv = 12, .kind = StreamKind::kHugeLogits}},
      {"huge logits, soft-cap",
       {.tokens = 70, .d = 6, .dv = 7, .softcap = 50.0, .kind = StreamKind::kHugeLogits}},
      {"as long as a tile", {.tokens = 64, .d = 16, .dv = 64}},
      {"one more than a tile", {.tokens = 129, .d = 17, .dv = 65, .window = 64}},
      {"d = 34, dv = 43", {.tokens = 150, .d = 34, .dv = 43, .heads_per_kv = 5, .window = 80}},
      {"ties", {.tokens = 300, .d = 4, .dv = 4, .kind = StreamKind::kTies}},
      {"equal keys", {.tokens = 50, .d = 8, .dv = 3, .kind = StreamKind::kEqualKeys}},
      {"zero keys", {.tokens = 50, .d = 8, .dv = 3, .kind = StreamKind::kZeroKeys}},
      {"zero values", {.tokens = 30, .d = 8, .dv = 3, .kind = StreamKind::kZeroValues}},
      {"clustered", {.tokens = 597, .d = 5, .dv = 130, .kind = StreamKind::kClustered}},
      {"chunks of 37", {.tokens = 150, .d = 7, .dv = 9, .heads_per_kv = 3, .chunk = 37}},
      {"chunks over tiles", {.tokens = 700, .d = 5, .dv = 6, .heads_per_kv = 2, .chunk = 300}},
      {"queries of the last rows only", {.tokens = 1500, .d = 8, .dv = 8, .first_query = 1437}},
  };
}

}  // namespace kvbench::test
