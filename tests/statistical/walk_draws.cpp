#include "statistical/walk_draws.hpp"

#include <cmath>
#include <memory>
#include <random>

#include "support/balance_rows.hpp"
#include "support/given.hpp"

namespace kvbench::test {
namespace {

std::vector<Index> tokens_of(const WalkCase& c) {
  std::vector<Index> out;
  for (Index j = 0; j + 1 < c.stream->shape.tokens; ++j) out.push_back(j);
  return out;
}

}  // namespace

WalkDraws library_walks(const WalkCase& c) {
  const AlgorithmDescription& algorithm = algorithm_named("softmax_balance");
  const Params params = params_for(
      algorithm,
      {{"T", count_of(1)}, {"c", number(c.c)}, {"r", number(c.r)}, {"sinks", count_of(0)}});
  return [c, &algorithm, params](std::uint32_t seed) {
    const Index prompt = c.stream->shape.tokens - 1;
    Stepper stepper(*c.stream, prompt, algorithm, params, seed);
    stepper.next();
    const BalanceRows rows = balance_rows(stepper.sketch());
    WalkDraw out;
    out.signs.assign(prompt, -1);
    for (const BalanceRow& row : c.numerator ? rows.numerator : rows.denominator) {
      out.signs[row.token] = 1;
    }
    out.fail = stepper.algorithm().counters().clamped;
    return out;
  };
}

WalkDraws naive_walks(const WalkCase& c, WalkBug bug) {
  const WalkKernel kernel = walk_kernel(c);
  const Index count = c.stream->shape.tokens - 1;
  // R^2 = 1 leaves the keys' part of it in the kernel.
  const Real factor = bug == WalkBug::kUnscaledKernel
                          ? std::exp(static_cast<Real>(c.stream->shape.scale) * c.r * c.r)
                          : 1;
  auto gram = std::make_shared<std::vector<Real>>();
  for (Index j = 0; j < count; ++j) {
    for (Index i = 0; i < count; ++i) gram->push_back(factor * kernel(i, j));
  }
  return [c, bug, gram, count](std::uint32_t seed) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> uniform;
    std::vector<double> coins;
    for (Index j = 0; j < count; ++j) coins.push_back(uniform(rng));
    const NaiveWalk walk = naive_walk(
        count, [&](Index i, Index j) { return (*gram)[j * count + i]; },
        1 / (2 * static_cast<Real>(c.c)), false, coins, bug);
    return WalkDraw{walk.signs, walk.outside};
  };
}

WalkKernel walk_kernel(const WalkCase& c) {
  return balance_kernel(*c.stream, tokens_of(c), c.r,
                        c.numerator ? largest_norm(c.stream->values) : 0);
}

}  // namespace kvbench::test
