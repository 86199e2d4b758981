// SoftmaxBalance: halves a set of (key, value) pairs by the self-balancing walk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/mechanisms/balance_statistics.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench {

enum class Side { kSmaller, kRandom, kExactHalf };

struct BalancerParameters {
  std::optional<double> r;  // none: the stream's largest key norm
  double fail_prob = 0.01;
  std::optional<double> c;  // none: as in theory
  Side side = Side::kSmaller;
};

// r, fail_prob, c and side.
std::vector<Field<BalancerParameters>> balancer_fields();

// Shared work: norms of a stream.
struct StreamNorms {
  struct Result {
    double largest_key = 0.0;
    double largest_query = 0.0;  // largest of all heads' stored queries
    double largest_value = 0.0;
    std::vector<double> values;  // [tokens]
  };
  Result compute(const SharedContext& context) const;
  auto operator<=>(const StreamNorms&) const = default;
};

// BalanceKV Algorithm 2 on one stream; c, r and side as in the parameters. Its cells name
// StreamNorms among their shared work.
class SoftmaxBalancer {
 public:
  SoftmaxBalancer(const BalancerParameters& p, const CellContext& context);

  // Whose coins are thrown, with which values. `value_norm`: r_val, a bound on ||v||; 0: the values
  // are the scalar 1 (denominator).
  struct Instance {
    std::string purpose;  // names the draws
    double value_norm = 0.0;
  };

  // The kept half, ascending; `tokens` ascending. Draws are addressed by (token, level). `matrix`:
  // that of softmax_walk_matrix for these tokens, if there is one.
  std::vector<Index> halve(const Instance& instance, const std::vector<Index>& tokens,
                           std::uint32_t level, const WalkMatrices* matrix = nullptr);

  double largest_value_norm() const { return largest_value_norm_; }
  const BalanceStatistics& statistics() const { return statistics_; }
  void describe(Derived& derived) const;
  static std::vector<DerivedKey> derived_keys();

 private:
  const CellContext context_;
  Side side_;
  double c_ = 0.0;
  double r_key_ = 0.0;
  double largest_value_norm_ = 0.0;
  BalanceStatistics statistics_;
};

// The matrix of one walk over `tokens` with a bound r_key on the norms of keys, values over a bound
// `value_norm` on their norms (0: the scalar 1); null if the kernels have no room for it.
std::shared_ptr<const WalkMatrices> softmax_walk_matrix(const SharedContext& context, double r_key,
                                                        double value_norm,
                                                        const std::vector<Index>& tokens);

// Row of a token kept in the numerator alone, or in the denominator alone: no value is kept there.
SketchRow half_row(Index token, double weight, bool numerator);

}  // namespace kvbench
