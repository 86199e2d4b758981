// The input of the comparison with peers: one head of a dump, chosen the same way for every dump.
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"
#include "dump/dump.hpp"

namespace kvbench::bench {

struct ComparisonStream {
  std::string sequence;
  int layer = 0;
  Stream head;  // KV head 0 with its first query head alone
  Stream wide;  // heads side by side until keys are kWide long; no tokens where there are too few
  double delta = 0.0;  // SubGen's radius: a quantile of the keys' distances

  std::unique_ptr<StreamData> head_data;
  StreamData wide_data;
};

inline constexpr Index kWide = 256;
inline constexpr double kDeltaQuantile = 0.07;  // about 1000 clusters of 8192 tokens

// The first sequence of the dump, the middle one of its layers that have every query, no sliding
// window and no soft-cap; InputError where there is none. `wide` joins KV heads (layer by
// layer, then head by head) and each one's first query head; a head as long as kWide is wide
// itself.
ComparisonStream comparison_stream(const Dump& dump);

}  // namespace kvbench::bench
