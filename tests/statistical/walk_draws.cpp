#include "statistical/walk_draws.hpp"

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
    out.signs.assign(static_cast<std::size_t>(prompt), -1);
    for (const BalanceRow& row : c.numerator ? rows.numerator : rows.denominator) {
      out.signs[static_cast<std::size_t>(row.token)] = 1;
    }
    out.fail = stepper.algorithm().counters().fail;
    return out;
  };
}

WalkDraws naive_walks(const WalkCase& c, WalkBug bug) {
  return [c, bug](std::uint32_t seed) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> uniform;
    const NaiveHalf half = naive_softmax_balance(
        *c.stream, tokens_of(c), c.c, c.r, c.numerator ? largest_norm(c.stream->values) : 0,
        Side::kSmaller, [&](Index, int) { return uniform(rng); }, bug);
    return WalkDraw{half.walk.signs, half.walk.outside};
  };
}

WalkKernel walk_kernel(const WalkCase& c) {
  return balance_kernel(*c.stream, tokens_of(c), c.r,
                        c.numerator ? largest_norm(c.stream->values) : 0);
}

}  // namespace kvbench::test
