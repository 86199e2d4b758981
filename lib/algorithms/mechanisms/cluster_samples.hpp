// SubGen's uniform samples: for every cluster t independent samples, with replacement, of its
// members so far (Lemma 2 (5)), kept as rows of a sketch.
#pragma once

#include <map>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

class ClusterSamples {
 public:
  // Rows are added to `sketch`, which must outlive this and keep their positions.
  ClusterSamples(Sketch& sketch, Index t, CounterRng draw) : sketch_(sketch), t_(t), draw_(draw) {}

  // A cluster opens with `token`: t copies of it, n = 1.
  void open(Index token);
  // `token` becomes the n-th member of a cluster: each sample becomes it with probability 1/n.
  void join(std::size_t cluster, Index token);

  Index clusters() const { return std::ssize(counts_); }

 private:
  // Few samples are followed one by one, as exact jumps. Where t is beyond any cluster's size
  // (epsilon mode asks for that), equal samples are one row with a number of copies: each copy is
  // replaced independently, so the copies that stay are binomial.
  static constexpr Index kOneByOne = 1024;

  void join_one_by_one(std::size_t cluster, Index token, Index n);
  void join_thinning(std::size_t cluster, Index token, Index n);
  Index replaced_at(Index token, Index entry, Index n) const;
  SketchRow sample(Index token, Index copies, Index n) const;

  Sketch& sketch_;
  Index t_;
  CounterRng draw_;
  std::vector<Index> counts_;       // n_i
  std::vector<Index> first_row_;    // one by one: sketch position of the first sample
  std::vector<Index> replaced_at_;  // one by one: [m' t] the count at which a sample is replaced
  std::vector<std::vector<Index>> rows_;  // thinning: sketch positions, one per member
};

}  // namespace kvbench
