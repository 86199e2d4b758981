// keydiff: the tokens whose keys are least like the mean direction of all keys. No query is looked
// at.
//
// Source: KeyDiff (Park et al., arXiv 2504.15364) by kvpress 8bb29b9, keydiff_press.py and
// block_press.py; the paper's own code was not found.
//   block size -> block (0: all at once), anchor u -> mean of the candidates' unit keys
// Norms are floored as torch floors them, 1e-12 for unit keys and 1e-8 in the cosine, so that a
// zero key has cosine 0.
// Departures: none of kvpress. Released presses keep no sinks and no recent window: with them, both
// still count in u, and `recent` are the last candidates of a block's step. A block's step holds
// budget + block tokens, more than the memory reported, which is that of answers.
// Compared on the shipped dump in double precision: kvpress 0.5.5 (KeyDiffPress, also in
// BlockPress; by `tests/peers/run.sh`) keeps the same tokens, errors per row equal to 9 digits
// at least.
#include <algorithm>
#include <numeric>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "algorithms/mechanisms/token_scores.hpp"

namespace kvbench::methods::keydiff {
namespace {

struct Parameters : RankingParameters {
  Index block = 0;
};

class KeyDiff final : public CompressOnce {
 public:
  KeyDiff(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt),
                     p.budget.of(context.prompt)),
        parts_(budget_parts(p, context.prompt)),
        block_(p.block) {}

  std::vector<double> scores(PromptRange middle) const override {
    std::vector<Index> visible(prompt_.visible.size());
    std::iota(visible.begin(), visible.end(), prompt_.visible.first);
    const std::vector<double> all = key_differences(context_.stream.keys, visible);
    return {all.begin() + (middle.first - prompt_.visible.first),
            all.begin() + (middle.last - prompt_.visible.first)};
  }
  Index selected() const override {
    return parts_.budget - (prompt_.visible.size() - prompt_.middle.size());
  }

 protected:
  void compress_middle(PromptRange middle) override {
    for (const Index token : kept_of_prompt()) {
      if (token >= middle.first && token < middle.last) sketch_.add(SketchRow::exact(token));
    }
  }

 private:
  std::vector<Index> kept_of_prompt() const {
    const PromptRange visible = prompt_.visible;
    std::vector<Index> kept;
    Index next = visible.first;
    if (block_ > 0) {
      for (; next < visible.first + parts_.budget; ++next) kept.push_back(next);
    }
    while (next < visible.last) {
      const Index end = block_ > 0 ? std::min(next + block_, visible.last) : visible.last;
      for (; next < end; ++next) kept.push_back(next);
      kept = within_budget(kept, parts_, key_differences(context_.stream.keys, kept));
    }
    return kept;
  }

  BudgetParts parts_;
  Index block_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "keydiff";
  d.title = "tokens whose keys are least like the mean key";
  d.source = "KeyDiff (Park et al.)";
  d.parameters.add(ranking_fields());
  d.parameters.add({field("block", &Parameters::block,
                          "prompt tokens that are read at a time, after which tokens beyond the "
                          "budget are evicted; 0: all at once")});
  d.skip_reason = cannot_rank;
  d.most_kept = most_kept_ranked_once;
  d.ranks = ranked_parts;
  d.not_ranked = [](const Parameters& p) -> std::optional<std::string> {
    if (p.block == 0) return std::nullopt;
    return "with block the scores of a token change from step to step; set block to 0";
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<KeyDiff>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::keydiff
