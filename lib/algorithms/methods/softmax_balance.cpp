// softmax_balance: T rounds of SoftmaxBalance over the whole middle of the prompt, once for the
// numerator (values) and once for the denominator (ones), with separate coins.
//
// Source: BalanceKV Algorithm 2; the walk is that of Alweiss, Liu and Sawhney (Algorithm 4).
//   T -> T, delta -> fail_prob, c -> c, r_key -> r, r_val -> the stream's largest value norm,
//   eta -> WalkResult::signs, C' -> the kept half
// Departures: FAIL is counted and p is clamped, the walk goes on; the smaller side is biased, so
// `side` offers unbiased ones; with a logit soft-cap the kernel is not the model's
// (derived.kernel_mismatch).
#include <cmath>
#include <memory>
#include <optional>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/softmax_balancer.hpp"
#include "kernels/balance_walk.hpp"

namespace kvbench::methods::softmax_balance {
namespace {

std::vector<Index> tokens_of(PromptRange range) {
  std::vector<Index> tokens;
  for (Index j = range.first; j < range.last; ++j) tokens.push_back(j);
  return tokens;
}

struct Parameters : BalancerParameters {
  Index T = 0;
  TokenCount sinks = 256;
  TokenCount recent = 0;
};

struct FirstMatrices {
  std::shared_ptr<const WalkMatrices> numerator;  // null if all values are zero, or not kept
  std::shared_ptr<const WalkMatrices> denominator;
};

// Shared work: the matrices of the first round, the same for every seed, T, c and side.
struct FirstRound {
  std::optional<double> r;
  Index first = 0;  // first of the middle
  Index last = 0;

  using Result = FirstMatrices;
  Result compute(const SharedContext& context) const {
    const std::vector<Index> tokens = tokens_of({first, last});
    const StreamNorms::Result norms = StreamNorms().compute(context);
    const double r_key = r ? *r : norms.largest_key;
    const double norm = norms.largest_value;
    Result round;
    round.denominator = softmax_walk_matrix(context, r_key, 0.0, tokens);
    if (norm > 0.0) round.numerator = softmax_walk_matrix(context, r_key, norm, tokens);
    return round;
  }
  double bytes() const { return 2.0 * WalkMatrices::bytes(last - first); }
  double scratch(const StreamShape& shape, Index) const {
    return walk_bytes(last - first, shape.d, shape.dv);
  }
  auto operator<=>(const FirstRound&) const = default;
};

// The first round; nullopt if it would take more memory than it is worth: then each cell walks
// without.
std::optional<FirstRound> first_round(const Parameters& p, const StreamShape& shape, Index prompt) {
  const PromptRange middle =
      compressed_prompt(shape, prompt, p.sinks.of(prompt), p.recent.of(prompt)).middle;
  const FirstRound round{p.r, middle.first, middle.last};
  if (p.T == 0 || middle.size() == 0 || round.bytes() > kSharedWalkBytes) return std::nullopt;
  return round;
}

class SoftmaxBalance final : public CompressOnce {
 public:
  SoftmaxBalance(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt)),
        p_(p),
        balancer_(p, context) {}

  Derived derived() const override {
    Derived out = {{"sinks", prompt_.sinks},
                   {"recent", prompt_.recent},
                   {"middle", prompt_.middle.size()},
                   {"kept_numerator", kept_[0]},
                   {"kept_denominator", kept_[1]}};
    balancer_.describe(out);
    return out;
  }

  Counters counters() const override { return {.clamped = balancer_.statistics().clamped}; }

 protected:
  void compress_middle(PromptRange middle) override {
    const double norm = balancer_.largest_value_norm();
    const auto round = first_round(p_, context_.stream.shape, context_.prompt);
    const FirstMatrices* matrices = round ? &context_.shared.get(*round) : nullptr;
    for (const bool numerator : {true, false}) {
      std::vector<Index> tokens = tokens_of(middle);
      // Values that are all zero leave nothing to balance in the numerator.
      if (numerator && norm == 0.0) continue;
      const SoftmaxBalancer::Instance instance{
          numerator ? "softmax_balance/numerator" : "softmax_balance/denominator",
          numerator ? norm : 0.0};
      const WalkMatrices* matrix = nullptr;
      if (matrices != nullptr) {
        matrix = (numerator ? matrices->numerator : matrices->denominator).get();
      }
      for (Index level = 0; level < p_.T; ++level) {
        tokens = balancer_.halve(instance, tokens, static_cast<std::uint32_t>(level),
                                 level == 0 ? matrix : nullptr);
      }
      const double weight = std::ldexp(1.0, static_cast<int>(p_.T));
      for (const Index token : tokens) sketch_.add(half_row(token, weight, numerator));
      kept_[numerator ? 0 : 1] = std::ssize(tokens);
    }
  }

 private:
  Parameters p_;
  SoftmaxBalancer balancer_;
  Index kept_[2] = {0, 0};
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "softmax_balance";
  d.title = "halvings of the prompt by the self-balancing walk of the theory";
  d.source = "BalanceKV Algorithm 2";
  d.for_less_memory =
      "softmax_balance draws which side of a halving it keeps; for less "
      "memory raise T";
  d.limits.alibi = "softmax_balance approximates a kernel of inner products alone";
  d.derived = SoftmaxBalancer::derived_keys();
  d.derived.insert(d.derived.begin(),
                   {sinks_key(),
                    recent_key(),
                    middle_key(),
                    {"kept_numerator", "tokens of the middle that are kept in the numerator"},
                    {"kept_denominator", "tokens of the middle that are kept in the denominator"}});
  using P = Parameters;
  d.parameters.add({field("T", &P::T, "rounds of halving, each of which keeps about half")
                        .at_most(62)
                        .required()});
  d.parameters.add(balancer_fields());
  d.parameters.add({sinks_field(&P::sinks), recent_field(&P::recent)});
  d.randomised = [](const Parameters&) { return true; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("softmax_balance", shape);
  };
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work = {StreamNorms()};
    if (const auto round = first_round(p, shape, prompt)) work.push_back(*round);
    return work;
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.weighs = [](const Parameters&) { return true; };
  d.memory = [](const Parameters&, const StreamShape& shape, Index prompt) {
    return CellMemory{.working = walk_bytes(prompt, shape.d, shape.dv)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<SoftmaxBalance>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::softmax_balance
