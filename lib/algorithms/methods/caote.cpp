// caote: after each row the token goes whose loss changes this row's answer least.
//
// Source: CAOTE (Goel et al.), the paper's formula; no code was found.
//   alpha_j -> the share of token j in a row's attention over the kept tokens, X -> the answer,
//   e_j = alpha_j / (1 - alpha_j) |X - v_j| -> changes
// e_j is the length of the change of the answer on removing j. Scores of the query heads of a KV
// head are combined by `group`.
// Departures: of a prompt longer than the budget the tokens of largest e_j at its last row stay,
// all the others go at once. The newest token is not protected. The paper's mixes with the scores
// of other methods are not offered.
#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/mechanisms/attention_evictor.hpp"
#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"
#include "numerics/chains.hpp"

namespace kvbench::methods::caote {
namespace {

struct Parameters {
  TokenCount budget;
  GroupRule group = GroupRule::kMean;
};

class Caote final : public AttentionEvictor {
 public:
  Caote(const Parameters& p, const CellContext& context)
      : AttentionEvictor(context, p.budget.of(context.prompt)), group_(p.group) {}

 protected:
  std::vector<Index> best_of_prompt() override {
    const Stream& stream = context_.stream;
    const PromptRange visible = visible_prompt(stream.shape, context_.prompt);
    LogitBlock block;
    context_.kernels.logits(stream, {visible.last - 1}, block);
    std::vector<std::vector<double>> shares;
    for (Index g = 0; g < stream.shape.heads_per_kv; ++g) {
      const double* x = block.logits.data() + g * block.tokens;
      std::vector<double>& head = shares.emplace_back(x + visible.first, x + visible.last);
      softmax_with_sink(head.data(), head.size(), stream.sink(static_cast<int>(g)));
    }
    tokens_.clear();
    for (Index token = visible.first; token < visible.last; ++token) tokens_.push_back(token);
    score(shares);
    return best_tokens(combined_, visible.first, budget_);
  }

  void attended(Index, const std::vector<std::vector<double>>& shares) override {
    if (sketch_.size() <= budget_) return;
    tokens_.clear();
    for (const SketchRow& each : sketch_.rows()) tokens_.push_back(each.token);
    score(shares);
  }

  // Place of the lowest number, of equal ones the later token's.
  Index worst(Index) override {
    std::size_t lowest = 0;
    for (std::size_t p = 1; p < combined_.size(); ++p) {
      if (combined_[p] <= combined_[lowest]) lowest = p;
    }
    return lowest;
  }

 private:
  void score(const std::vector<std::vector<double>>& shares) {
    std::vector<std::vector<double>> changes;
    for (const std::vector<double>& head : shares) changes.push_back(changes_of(head));
    combine(group_, changes, tokens_.size(), combined_);
  }

  std::vector<double> changes_of(const std::vector<double>& shares) const {
    const ConstMatrix values = context_.stream.values;
    std::vector<double> answer(values.cols, 0.0);
    for (std::size_t p = 0; p < tokens_.size(); ++p) {
      for (std::size_t k = 0; k < answer.size(); ++k) {
        answer[k] += shares[p] * values.row(tokens_[p])[k];
      }
    }
    std::vector<double> changes = squared_distances(answer);
    for (std::size_t p = 0; p < tokens_.size(); ++p) {
      const double distance = std::sqrt(changes[p]);
      const double rest = 1.0 - shares[p];
      changes[p] =
          rest > 0.0 ? shares[p] / rest * distance : std::numeric_limits<double>::infinity();
    }
    return changes;
  }

  // Squared distances of the tokens' values to `answer`.
  std::vector<double> squared_distances(const std::vector<double>& answer) const {
    const ConstMatrix values = context_.stream.values;
    std::vector<const double*> rows;
    for (const Index token : tokens_) rows.push_back(values.row(token));
    std::vector<double> out(rows.size());
    canonical_chains<DistanceStep>(answer.data(), rows, values.cols, out.data());
    return out;
  }

  const GroupRule group_;
  std::vector<Index> tokens_;
  std::vector<double> combined_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "caote";
  d.title = "tokens without which the row's answer would change most";
  d.source = "CAOTE (Goel et al.)";
  using P = Parameters;
  d.parameters = {budget_field(&P::budget).required(), group_field(&P::group)};
  d.needs = [](const Parameters&) { return Needs{.row_logits = true, .kept_tokens_only = true}; };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(p.budget, prompt)) return reason;
    if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return lacks_queries(prompt, shape);
    return lacks_prompt_queries(prompt - 1, shape, prompt);
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return std::optional(most_kept_by_attention(p.budget, 0, shape, prompt));
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Caote>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::caote
