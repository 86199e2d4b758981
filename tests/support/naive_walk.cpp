#include "support/naive_walk.hpp"

#include <algorithm>
#include <cmath>

namespace kvbench::test {

NaiveWalk naive_walk(Index count, const WalkKernel& kernel, Real gain, bool first_is_plus,
                     const std::vector<double>& coins, WalkBug bug) {
  NaiveWalk out;
  for (Index j = 0; j < count; ++j) {
    const Index seen = bug == WalkBug::kStaleSum ? j - 1 : j;
    Real y = 0;
    for (Index i = 0; i < seen; ++i) y += out.signs[i] * kernel(i, j);
    Real p = 0.5L - gain * y;
    if (bug == WalkBug::kWrongSign) p = 0.5L + gain * y;
    if (bug == WalkBug::kLostFactorTwo) p = 0.5L - 2 * gain * y;
    if (bug == WalkBug::kCoinFlip) p = 0.5L;
    out.wanted.push_back(p);
    if (p < 0 || p > 1) ++out.outside;
    const bool plus =
        (j == 0 && first_is_plus) || static_cast<Real>(coins[j]) < std::clamp<Real>(p, 0, 1);
    out.signs.push_back(plus ? 1 : -1);
  }
  return out;
}

WalkKernel balance_kernel(const Stream& stream, const std::vector<Index>& tokens, Real r,
                          Real value_norm) {
  const auto dot = [](ConstMatrix rows, Index a, Index b) {
    Real sum = 0;
    for (Index k = 0; k < rows.cols; ++k) {
      sum += static_cast<Real>(rows(a, k)) * static_cast<Real>(rows(b, k));
    }
    return sum;
  };
  return [&stream, tokens, r, value_norm, dot](Index i, Index j) {
    const Index a = tokens[i];
    const Index b = tokens[j];
    const Real exponent = stream.shape.scale * (dot(stream.keys, a, b) - r * r);
    const Real values = value_norm > 0 ? dot(stream.values, a, b) / (value_norm * value_norm) : 1;
    return std::exp(std::min<Real>(exponent, 700)) * values;
  };
}

NaiveHalf naive_softmax_balance(const Stream& stream, const std::vector<Index>& tokens, Real c,
                                Real r, Real value_norm, Side side,
                                const std::function<double(Index token, int which)>& coin) {
  NaiveHalf out;
  if (tokens.empty()) return out;
  std::vector<double> coins;
  for (const Index token : tokens) coins.push_back(coin(token, 0));
  const WalkKernel kernel = balance_kernel(stream, tokens, r, value_norm);
  out.walk = naive_walk(std::ssize(tokens), kernel, 1 / (2 * c), false, coins);

  std::vector<Index> plus;
  std::vector<Index> minus;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    (out.walk.signs[i] > 0 ? plus : minus).push_back(tokens[i]);
  }
  if (side == Side::kRandom) {
    out.kept = coin(tokens.front(), 1) < 0.5 ? plus : minus;
    return out;
  }
  const bool ties_to_plus = plus.size() <= minus.size();
  out.kept = ties_to_plus ? plus : minus;
  std::vector<Index> rest = ties_to_plus ? minus : plus;
  if (side == Side::kExactHalf) {
    std::sort(rest.begin(), rest.end(), [&](Index a, Index b) { return coin(a, 2) < coin(b, 2); });
    while (out.kept.size() < tokens.size() / 2) {
      out.kept.push_back(rest.front());
      rest.erase(rest.begin());
    }
    std::sort(out.kept.begin(), out.kept.end());
  }
  return out;
}

}  // namespace kvbench::test
