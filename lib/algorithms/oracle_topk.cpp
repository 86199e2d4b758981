// oracle_topk: at every row the `budget` visible tokens of largest attention probability. No
// streaming method can know them: a reference floor for methods that keep a subset of tokens.
//
// Source: reference floor (true top tokens per row). No departures.
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/budget.hpp"
#include "algorithms/group_rule.hpp"

namespace kvbench {
namespace {

class OracleTopk final : public Algorithm {
 public:
  explicit OracleTopk(const Setting& setting)
      : budget_(setting.params.tokens("budget", setting.prompt)),
        rule_(group_rule(setting.params.word("group"))) {}

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    const Index visible = row.row + 1 - row.lo;
    std::vector<double> inverse(static_cast<std::size_t>(row.group));
    for (int g = 0; g < row.group; ++g) {
      double sum = 0.0;
      for (Index j = row.lo; j <= row.row; ++j) sum += row.exps(g)[j];
      inverse[static_cast<std::size_t>(g)] = 1.0 / sum;
    }
    std::vector<double> scores(static_cast<std::size_t>(visible));
    for (Index j = row.lo; j <= row.row; ++j) {
      scores[static_cast<std::size_t>(j - row.lo)] = combine(rule_, row.group, [&](int g) {
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
  AlgorithmDescription d;
  d.id = "oracle_topk";
  d.title = "per row, the tokens of largest attention probability (needs to know the future)";
  d.source = "reference floor";
  d.parameters = {budget_parameter(), group_parameter()};
  d.keeps_everything = [](const Params&) { return true; };
  d.needs = [](const Params&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Params& params, const StreamShape&, Index prompt) {
    return empty_budget(params, prompt);
  };
  d.create = [](const Setting& setting) { return std::make_unique<OracleTopk>(setting); };
  return d;
}

}  // namespace kvbench
