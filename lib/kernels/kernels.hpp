// The kernel table: the coarse, dense or streaming work that a device does. One interface, filled
// by lib/kernels for the CPU and by cuda/kernels for the GPU, file for file with the same stems.
//
// Kernels that decide something (logits that scores are made of, distances, score sums, k-center,
// clustering, walks, the weighted sums of answers) compute canonical values
// (numerics/canonical.hpp): their bits depend neither on blocking, threads, instruction set nor
// device.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "kernels/resident_rows.hpp"
#include "kernels/walk.hpp"
#include "kernels/weighted_values.hpp"
#include "numerics/aligned.hpp"
#include "numerics/logit_noise.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// Exact attention of the G query heads at some rows of a stream. Index r * G + g.
struct ExactRows {
  std::vector<Index> rows;          // token positions, ascending
  UnfilledDoubles outputs;          // [R * G, dv]  a_i
  std::vector<double> max_logit;    // [R * G]      m_i = max_j x_ij, the sink's among them
  std::vector<double> normalizer;   // [R * G]      Z_i exp(-m_i) >= 1, with the sink
  std::vector<double> squared_sum;  // [R * G]      sum_j exp(2 (x_ij - m_i))
};

// Logits of the G query heads at some rows of a stream: x(r * G + g, j) for the visible tokens
// j of row i = rows[r], undefined elsewhere; exponentials e = exp(x - m_i) and m_i, the largest
// logit of tokens and sink, next to them.
struct LogitBlock {
  std::vector<Index> rows;        // token positions, ascending
  Index tokens = 0;               // columns: what the last row sees ends there
  AlignedDoubles logits;          // [R * G, tokens]
  AlignedDoubles exps;            // [R * G, tokens]
  std::vector<double> max_logit;  // [R * G]
};

// The delta-net of SubGen: every token's cluster, clusters numbered in order of opening.
struct Clustering {
  double delta = 0.0;
  Index first = 0;                       // token of the first entry below
  std::vector<std::int32_t> assignment;  // [n - first]
  std::vector<std::int32_t> opened_by;   // [m'] the token that is the representative
};

struct Centers {
  std::vector<Index> tokens;          // in order of choice
  std::vector<double> radius;         // covering radius after each choice
  std::vector<std::int32_t> nearest;  // per candidate: position in `tokens` of its nearest centre
};

// How rows score tokens: s_i = softmax((x_i + noise) / temperature), gathered over rows as
// f = decay f + gain s.
struct ScoreRule {
  LogitNoise noise;
  double temperature = 1.0;
  double decay = 1.0;
  double gain = 1.0;
};

// Noise per token factors out of the softmax, exp((x + g) / t) = exp(x / t) exp(g / t), as long as
// the second factor is far from overflow (|g| < 37): then it is a weight of the token, and rules
// that differ in it alone share all exponentials.
inline bool weighs_tokens(const ScoreRule& rule) {
  return !rule.noise.is_none() && !rule.noise.per_row && rule.temperature >= 0.1;
}

using ScoreSums = std::vector<std::vector<double>>;  // [G][n]

// Rows [48 s, 48 (s + 1)) are a stripe: scores are summed stripe by stripe, in order.
inline constexpr Index kScoreStripeRows = 48;

// If any of a query head's sums is NaN (logits overflow), all are.
inline void spread_overflow(ScoreSums& sums) {
  for (std::vector<double>& head : sums) {
    if (std::any_of(head.begin(), head.end(), [](double f) { return std::isnan(f); })) {
      std::fill(head.begin(), head.end(), std::numeric_limits<double>::quiet_NaN());
    }
  }
}

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::string device() const = 0;

  // Keeps a stream's keys and values where the table computes, for all calls on them until the
  // returned object is gone; they must live as long and may not change. Null if nothing is kept.
  virtual std::shared_ptr<const void> make_resident(const Stream& stream) const = 0;

  // Exact attention at `rows` (each with a stored query) by blocked online softmax in double.
  virtual ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const = 0;

  // Canonical logits at `rows` (ascending, each with a stored query).
  virtual void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const = 0;

  // The same rows, with their exponentials kept where the table computes, for answers there; the
  // stream must live as long. Null if nothing is kept.
  virtual std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const = 0;

  // For each rule, the scores of rows [first, last), ascending, gathered by it: f[g][j]; O(n)
  // memory per rule. Needs the queries of those rows. A token that no later row sees stops
  // decaying; if logits overflow, a query head's sums are NaN.
  virtual std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                               const std::vector<ScoreRule>& rules) const = 0;
  ScoreSums score_sums(const Stream& stream, Index first, Index last,
                       const ScoreRule& rule = {}) const {
    return std::move(score_sums_by(stream, first, last, {rule}).front());
  }

  // SubGen Alg. 1 lines 3-12 on points [first, rows): nearest representative in l2 (ties: oldest),
  // a new cluster if its distance exceeds delta.
  virtual Clustering cluster(ConstMatrix points, Index first, double delta) const = 0;

  // Greedy farthest-first over rows [first, last) of `points`: `count` centres, distinct rows,
  // starting from row `start`; ties, distance 0 included, go to the lowest index that is not a
  // centre.
  virtual Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                                 Index count) const = 0;

  // ||V_i||_op and ||V_i||_F of the values visible at each of `rows`, in any order; relative error
  // below 1e-10.
  virtual void value_norms(const Stream& stream, const std::vector<Index>& rows,
                           std::vector<double>& spectral, std::vector<double>& frobenius) const = 0;

  // The matrices of a batch of self-balancing walks, walk w over sizes[w] tokens; null if there
  // is no memory for them: the walks then work without.
  virtual std::shared_ptr<const WalkMatrices> walk_matrices(const std::vector<Index>& sizes,
                                                            const WalkSource& tokens) const = 0;
  // A batch of self-balancing walks, by matrices that are kept or over tokens; uniforms[w] has one
  // number per token of walk w.
  virtual std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const = 0;
  virtual std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const = 0;

  // The values of a stream, to be summed by weights: the numerators of answers. They and the table
  // must live as long.
  virtual std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const = 0;
};

const Kernels& cpu_kernels();

}  // namespace kvbench
