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

#include "algorithms/compress_once.hpp"
#include "algorithms/softmax_balancer.hpp"

namespace kvbench {
namespace {

std::vector<Index> tokens_of(PromptRange range) {
  std::vector<Index> tokens;
  for (Index j = range.first; j < range.last; ++j) tokens.push_back(j);
  return tokens;
}

// The matrices of the first round, the same for every seed, T, c and side.
struct FirstRound {
  std::shared_ptr<const WalkMatrices> numerator;  // null where all values are zero, or not held
  std::shared_ptr<const WalkMatrices> denominator;
};

// None where they would take more memory than they are worth: then each cell walks without.
std::optional<SharedWork> first_round(const Params& params, const StreamShape& shape,
                                      Index prompt) {
  const PromptRange middle = compressed_prompt(shape, prompt, params.tokens("sinks", prompt),
                                               params.tokens("recent", prompt))
                                 .middle;
  if (params.integer("T") == 0 || middle.size() == 0 ||
      2.0 * WalkMatrices::bytes(middle.size()) > kSharedWalkBytes) {
    return std::nullopt;
  }
  const std::string key = "softmax_balance/first_round/" + to_string(params.at("r")) + "/" +
                          std::to_string(middle.first) + "-" + std::to_string(middle.last);
  return SharedWork{key,
                    [params, middle](const SharedSetting& setting) {
                      const std::vector<Index> tokens = tokens_of(middle);
                      const double norm = largest_value_norm(setting.stream);
                      FirstRound round;
                      round.denominator = softmax_walk_matrix(setting, params, 0.0, tokens);
                      if (norm > 0.0)
                        round.numerator = softmax_walk_matrix(setting, params, norm, tokens);
                      return std::any(std::move(round));
                    },
                    2.0 * WalkMatrices::bytes(middle.size())};
}

class SoftmaxBalance final : public CompressOnce {
 public:
  explicit SoftmaxBalance(const Setting& setting)
      : CompressOnce(setting, setting.params.tokens("sinks", setting.prompt),
                     setting.params.tokens("recent", setting.prompt)),
        balancer_(setting) {}

  Derived derived() const override {
    Derived out = {{"sinks", prompt_.sinks},
                   {"recent", prompt_.recent},
                   {"middle", prompt_.middle.size()},
                   {"kept_numerator", kept_[0]},
                   {"kept_denominator", kept_[1]}};
    balancer_.describe(out);
    return out;
  }

  Counters counters() const override {
    const Index clamped = balancer_.statistics().clamped;
    return {.fail = clamped, .clamped = clamped};
  }

 protected:
  void compress_middle(PromptRange middle) override {
    const double norm = balancer_.largest_value_norm();
    const auto shared = first_round(setting_.params, setting_.stream.shape, setting_.prompt);
    const FirstRound* matrices = shared ? &setting_.shared.get<FirstRound>(shared->key) : nullptr;
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
      const std::int64_t rounds = setting_.params.integer("T");
      for (std::int64_t round = 0; round < rounds; ++round) {
        tokens = balancer_.halve(instance, tokens, static_cast<std::uint32_t>(round),
                                 round == 0 ? matrix : nullptr);
      }
      const double weight = std::ldexp(1.0, static_cast<int>(rounds));
      for (const Index token : tokens) sketch_.add(half_row(token, weight, numerator));
      kept_[numerator ? 0 : 1] = static_cast<Index>(tokens.size());
    }
  }

 private:
  SoftmaxBalancer balancer_;
  Index kept_[2] = {0, 0};
};

}  // namespace

AlgorithmDescription describe_softmax_balance() {
  AlgorithmDescription d;
  d.id = "softmax_balance";
  d.title = "halvings of the prompt by the self-balancing walk of the theory";
  d.source = "BalanceKV Algorithm 2";
  Parameter levels;
  levels.name = "T";
  levels.maximum = 62;
  levels.doc = "rounds of halving";
  d.parameters = {levels};
  for (Parameter& parameter : softmax_balancer_parameters()) d.parameters.push_back(parameter);
  d.parameters.push_back(sinks_parameter(256));
  d.parameters.push_back(recent_parameter(Value{std::int64_t{0}}));
  d.randomised = [](const Params&) { return true; };
  d.skip_reason = [](const Params&, const StreamShape& shape, Index) {
    return cannot_forget("softmax_balance", shape);
  };
  d.shared_work = [](const Params& params, const StreamShape& shape, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work;
    if (auto round = first_round(params, shape, prompt)) work.push_back(std::move(*round));
    return work;
  };
  d.create = [](const Setting& setting) { return std::make_unique<SoftmaxBalance>(setting); };
  return d;
}

}  // namespace kvbench
