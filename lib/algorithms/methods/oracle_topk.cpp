// oracle_topk: at every row the `budget` visible tokens of largest attention probability. No
// streaming method can know them: a yardstick for methods that keep a subset of tokens.
//
// With `group` mean, max or sum the query heads of a KV head read the same tokens; with none each
// reads its own best.
//
// Source: no paper; the true top tokens of a row.
// Run next to the OracleTopK of xAlg-ai/sparse-attention-hub 1a048c9 (SkyLight), group none: its
// errors at 2, 10 and 20 % of the tokens are these to 1.4e-7, 27 cells of the shipped dump.
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::oracle_topk {
namespace {

enum class Choice { kMean, kMax, kSum, kEachHead };

struct Parameters {
  TokenCount budget;
  Choice group = Choice::kMean;
};

GroupRule rule_of(Choice choice) {
  if (choice == Choice::kMax) return GroupRule::kMax;
  return choice == Choice::kSum ? GroupRule::kSum : GroupRule::kMean;
}

class OracleTopk final : public Algorithm {
 public:
  OracleTopk(const Parameters& p, const CellContext& context)
      : budget_(p.budget.of(context.prompt)), choice_(p.group) {}

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    const Index visible = row.end - row.lo;
    std::vector<double> inverse(row.heads_per_kv);
    for (int g = 0; g < row.heads_per_kv; ++g) {
      double sum = 0.0;
      for (Index j = row.lo; j < row.end; ++j) sum += row.exps(g)[j];
      sum += canonical_exp(row.sink(g) - row.max[g]);
      inverse[g] = 1.0 / sum;
    }
    const auto share = [&](int g, Index token) { return row.exps(g)[token] * inverse[g]; };
    const auto best = [&](const auto& score) {
      std::vector<double> scores(visible);
      for (Index j = row.lo; j < row.end; ++j) {
        scores[j - row.lo] = score(j);
      }
      return best_tokens(scores, row.lo, budget_);
    };
    sketch_.clear();
    if (choice_ != Choice::kEachHead) {
      const auto combined = [&](Index token) {
        return combine(rule_of(choice_), row.heads_per_kv, [&](int g) { return share(g, token); });
      };
      read_exactly(best(combined), kEveryHead, sketch_);
      return;
    }
    for (int g = 0; g < row.heads_per_kv; ++g) {
      read_exactly(best([&](Index token) { return share(g, token); }),
                   reading_head(g, row.heads_per_kv), sketch_);
    }
  }

 private:
  Index budget_;
  Choice choice_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "oracle_topk";
  d.title = "per row, the tokens of largest attention probability (needs to know the future)";
  d.source = "no paper; the best tokens in hindsight";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  d.parameters = {budget_field(&Parameters::budget).required(),
                  field("group", &Parameters::group,
                        {{"mean", Choice::kMean},
                         {"max", Choice::kMax},
                         {"sum", Choice::kSum},
                         {"none", Choice::kEachHead}},
                        "how the scores of the query heads of a KV head are combined for ranking; "
                        "none: each ranks for itself")};
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Parameters& p, const StreamShape&, Index prompt) {
    return empty_budget(p.budget, prompt);
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<OracleTopk>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::oracle_topk
