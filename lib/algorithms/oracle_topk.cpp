// oracle_topk: at every row the `budget` visible tokens of largest attention probability. No
// streaming method can know them: a reference floor for methods that keep a subset of tokens.
//
// Source: reference floor (true top tokens per row). No departures.
#include <vector>

#include "algorithms/budget.hpp"
#include "algorithms/group_rule.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench {
namespace {

struct Parameters {
  TokenCount budget;
  GroupRule group = GroupRule::kMean;
};

class OracleTopk final : public Algorithm {
 public:
  OracleTopk(const Parameters& p, const CellContext& context)
      : budget_(p.budget.of(context.prompt)), rule_(p.group) {}

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    const Index visible = row.row + 1 - row.lo;
    std::vector<double> inverse(static_cast<std::size_t>(row.heads_per_kv));
    for (int g = 0; g < row.heads_per_kv; ++g) {
      double sum = 0.0;
      for (Index j = row.lo; j <= row.row; ++j) sum += row.exps(g)[j];
      inverse[static_cast<std::size_t>(g)] = 1.0 / sum;
    }
    std::vector<double> scores(static_cast<std::size_t>(visible));
    for (Index j = row.lo; j <= row.row; ++j) {
      scores[static_cast<std::size_t>(j - row.lo)] = combine(rule_, row.heads_per_kv, [&](int g) {
        return row.exps(g)[j] * inverse[static_cast<std::size_t>(g)];
      });
    }
    sketch_.clear();
    for (const Index token : best_tokens(scores, row.lo, budget_)) {
      sketch_.add(SketchRow::exact(token));
    }
  }

 private:
  Index budget_;
  GroupRule rule_;
};

}  // namespace

AlgorithmDescription describe_oracle_topk() {
  TypedAlgorithm<Parameters> d;
  d.id = "oracle_topk";
  d.title = "per row, the tokens of largest attention probability (needs to know the future)";
  d.source = "reference floor";
  d.parameters = {budget_field(&Parameters::budget).required(), group_field(&Parameters::group)};
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

}  // namespace kvbench
