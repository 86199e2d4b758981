// The largest of the numbers that a block's threads found.
#pragma once

#include "cuda/machine.hpp"

namespace kvbench::cuda {

// largest[0] becomes the largest of all, whatever the order; `kThreads` is a power of two.
template <Block B, int kThreads>
KVBENCH_DEVICE void gather_largest(B& block, double (&largest)[kThreads]) {
  for (int half = kThreads / 2; half > 0; half /= 2) {
    block.each(half, [&](Index t) {
      const double other = largest[t + half];
      largest[t] = largest[t] > other ? largest[t] : other;
    });
  }
}

}  // namespace kvbench::cuda
