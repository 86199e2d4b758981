// SoftmaxBalance: halves a set of (key, value) pairs by the self-balancing walk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/balance_statistics.hpp"
#include "core/random.hpp"

namespace kvbench {

// BalanceKV Algorithm 2 on one stream; c, r and side as the parameters say.
class SoftmaxBalancer {
 public:
  explicit SoftmaxBalancer(const Setting& setting);

  // Whose coins are thrown, with which values. `value_norm`: r_val, a bound on ||v||; 0: the values
  // are the scalar 1 (denominator).
  struct Instance {
    std::string purpose;  // names the draws
    double value_norm = 0.0;
  };

  // The kept half, ascending; `tokens` ascending. Draws are addressed by (token, level). `matrix`:
  // that of softmax_walk_matrix for these tokens, where it is at hand.
  std::vector<Index> halve(const Instance& instance, const std::vector<Index>& tokens,
                           std::uint32_t level, const WalkMatrices* matrix = nullptr);

  double largest_value_norm() const { return largest_value_norm_; }
  const BalanceStatistics& statistics() const { return statistics_; }
  void describe(Derived& derived) const;

 private:
  const Setting setting_;
  double c_ = 0.0;
  double r_key_ = 0.0;
  double largest_value_norm_ = 0.0;
  BalanceStatistics statistics_;
};

// The matrix of one walk over `tokens`, values over a bound `value_norm` on their norms (0: the
// scalar 1); null where the kernels have no room for it.
std::shared_ptr<const WalkMatrices> softmax_walk_matrix(const SharedSetting& setting,
                                                        const Params& params, double value_norm,
                                                        const std::vector<Index>& tokens);

// What a kept token is in the numerator alone, or in the denominator alone: no value is held there.
SketchRow half_row(Index token, double weight, bool numerator);

// Parameters r, fail_prob, c and side.
std::vector<Parameter> softmax_balancer_parameters();

// Largest norms of a stream.
double largest_key_norm(const Stream& stream);
double largest_value_norm(const Stream& stream);

}  // namespace kvbench
