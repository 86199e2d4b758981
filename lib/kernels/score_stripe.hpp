// Scores of a stripe of rows, gathered per token: what score sums are made of.
//
// Rules that differ in nothing but weights per token, decay and gain share one reading of the
// logits. With y_ij = (x_ij + noise) / temperature, m_i = max_j y_ij and e_ij = exp(y_ij - m_i),
// rule k gathers from the rows of a stripe
//
//   p_kj = sum_i e_ij a_ki,   a_ki = gain decay^(rows of the stripe after i) / sum_j e_ij w_kj.
//
// A sink of logit s has y = s / temperature, without noise or weight: m_i is at least that, and its
// exponential is added to the sum over j.
//
// Sums over j are made of eight parts (token modulo 8), each ascending; sums over i ascend; every
// step is one fused multiply-add. So no bit depends on which rules, rows or tokens are computed
// together.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/aligned.hpp"

namespace kvbench {

struct RowRange {
  Index first;
  Index last;
};

// Rules that share y.
struct RuleFamily {
  double temperature = 1.0;
  const LogitNoise* noise = nullptr;    // part of y; null: none
  std::vector<const ScoreRule*> rules;  // K
  std::vector<AlignedDoubles> weights;  // [K G] w of rule k and query head g at k G + g, [padded]
};

// Room for e of some rows of a stripe, reused from stripe to stripe by one thread at a time. Tiles
// of tokens lie one after the other, so that three passes over them (logits, exponentials, sums per
// token) read and write memory in one direction. Memory O(n).
class ScoreTiles {
 public:
  // For stripes over at most `tokens` tokens, on `threads` threads at the same time.
  ScoreTiles(const StreamShape& shape, Index tokens, int threads);

  // Rows at once of a stripe over `tokens` tokens: as many as stay in the second cache while the
  // keys stay in the last one, which each reads again; beyond it more, so that keys are read less.
  Index rows(Index tokens) const;
  double* e() { return e_.data(); }

 private:
  Index key_bytes_;
  int threads_;
  AlignedDoubles e_;  // [tiles, rows, a tile's stride]
};

class ScoreStripe {
 public:
  // `keys` hold tokens [0, n), n beyond the last row asked for.
  ScoreStripe(const Stream& stream, const PackedKeys& keys, const RuleFamily& family)
      : stream_(stream), keys_(keys), family_(family) {}

  // Tokens that a stripe is computed for, whole steps.
  static Index tokens(const StreamShape& shape, RowRange rows);

  // p of query head g and the rows of one stripe.
  void gather(RowRange rows, int g, ScoreTiles& tiles);

  // p_kj at [j - begin()], tokens [begin(), last row].
  const double* sums(std::size_t k) const { return sums_[k]; }
  Index begin() const { return begin_; }

 private:
  struct Rows;  // the current ones

  void logits(const Rows& at, int g);
  void exponentials(const Rows& at);
  void coefficients(const Rows& at, Index stripe_last);
  void add(const Rows& at);

  const Stream& stream_;
  const PackedKeys& keys_;
  const RuleFamily& family_;
  double sink_ = 0.0;  // y of the query head's sink; -infinity: none
  Index begin_ = 0;    // first token of e and p
  // Pointers by rule: w and p from begin_ on; a of the current rows, and the parts of its
  // normalisers.
  std::vector<const double*> weights_;
  std::vector<double*> sums_;
  std::vector<double*> factors_;
  std::vector<double*> parts_;
  AlignedDoubles sums_memory_;
  std::vector<double> factors_memory_;
  AlignedDoubles parts_memory_;
  AlignedDoubles largest_;  // [rows, 2 lanes] of y
};

}  // namespace kvbench
