// The self-balancing walk coin by coin, with SoftmaxBalance around it. Bugs of the walk can be
// switched on to show that a statistical test sees them.
#pragma once

#include <functional>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {

enum class WalkBug {
  kNone,
  kWrongSign,       // p = 1/2 + y / (2 c R^2)
  kLostFactorTwo,   // p = 1/2 - y / (c R^2)
  kStaleSum,        // y without the last token
  kCoinFlip,        // p = 1/2
  kUnscaledKernel,  // R^2 = 1
};

// K(i, j) of tokens of the walk, 0-based.
using WalkKernel = std::function<Real(Index i, Index j)>;

struct NaiveWalk {
  std::vector<int> signs;
  std::vector<Real> wanted;  // p before it was clamped
  Index outside = 0;         // steps with p outside [0, 1]
};

// p_j = 1/2 - gain sum of eta_i K(i, j) over i < j; eta_j = +1 iff coins[j] < p_j clamped.
NaiveWalk naive_walk(Index count, const WalkKernel& kernel, Real gain, bool first_is_plus,
                     const std::vector<double>& coins, WalkBug bug = WalkBug::kNone);

// exp(beta (<k_i, k_j> - r^2)) <v_i, v_j> / value_norm^2 over `tokens`; value_norm 0: values are 1.
WalkKernel balance_kernel(const Stream& stream, const std::vector<Index>& tokens, Real r,
                          Real value_norm);

enum class Side { kSmaller, kRandom, kExactHalf };

// The tokens that SoftmaxBalance keeps, ascending. `coin(token, which)`: uniform number 0 of a
// token decides its sign, number 1 of the first token the side, number 2 the order in which others
// fill up.
struct NaiveHalf {
  std::vector<Index> kept;
  NaiveWalk walk;
};
NaiveHalf naive_softmax_balance(const Stream& stream, const std::vector<Index>& tokens, Real c,
                                Real r, Real value_norm, Side side,
                                const std::function<double(Index token, int which)>& coin);

}  // namespace kvbench::test
