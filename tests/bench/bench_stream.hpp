// The stream that benchmarks run on: keys round a few hundred centres that are visited unevenly,
// one of every run the same.
#pragma once

#include <memory>
#include <vector>

#include "core/stream.hpp"

namespace kvbench::bench {

struct BenchStream {
  std::vector<double> keys, values, queries;
  Stream stream;
};

// n tokens of dimension d for keys and values; made once per size. With one query head it has no
// rotary positions, with more it has.
const Stream& bench_stream(Index tokens, Index d, int heads = 1);

}  // namespace kvbench::bench
