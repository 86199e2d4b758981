// SoftmaxBalance: halves a set of (key, value) pairs by the self-balancing walk.
#pragma once

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

  // The kept half, ascending; `tokens` ascending. Draws are addressed by (token, level).
  std::vector<Index> halve(const Instance& instance, const std::vector<Index>& tokens,
                           std::uint32_t level);

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

// Parameters r, fail_prob, c and side.
std::vector<Parameter> softmax_balancer_parameters();

// Largest key norm of a stream.
double largest_key_norm(const Stream& stream);

}  // namespace kvbench
