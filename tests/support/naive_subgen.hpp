// SubGen Algorithm 1 with one coin per slot, token and sample: slow, and the law that any faster
// way to draw must have. Bugs can be switched on to show that a test sees them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.hpp"
#include "sketch/sketch.hpp"

namespace kvbench::test {

enum class SubgenBug {
  kNone,
  kUnsquaredNorm,      // slots by ||v|| instead of ||v||^2
  kMuBeforeCoin,       // mu grows before the coin is thrown: probability w / (mu + 2w)
  kStaleMu,            // probability w / mu without the token's own w
  kUniformSlots,       // slots by 1, but weighted as if by ||v||^2
  kStaleCount,         // samples replaced with probability 1/n before n grew
  kSharedSlotCoin,     // one coin for all slots of a token
  kSharedSampleCoin,   // one coin for all samples of a cluster
  kHalfNumerator,      // lost factor 2 in the numerator
  kRootWeights,        // numerator weighted by ||v|| where the law is ||v||^2
  kNormalizerByCount,  // n / t replaced by (n - 1) / t
  kKeepFirstSample,    // samples never change after the cluster opened
};

struct NaiveSubgen {
  struct Cluster {
    Index representative;
    Index count;
    std::vector<Index> samples;  // [t]
    std::vector<Index> members;  // all tokens of the cluster
  };

  double mu = 0.0;
  std::vector<Index> slots;  // [s] token, -1: null
  std::vector<Cluster> clusters;
  std::vector<Index> assignment;  // per token
};

NaiveSubgen naive_subgen(const Stream& stream, Index tokens, double delta, Index t, Index s,
                         std::uint64_t seed, SubgenBug bug = SubgenBug::kNone);

// The clustering alone, no samples.
NaiveSubgen naive_clusters(const Stream& stream, Index tokens, double delta);

// The state as a sketch with the estimator's weights.
Sketch naive_subgen_sketch(const Stream& stream, const NaiveSubgen& state,
                           SubgenBug bug = SubgenBug::kNone);

double squared_norm(ConstMatrix matrix, Index row);

}  // namespace kvbench::test
