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
// BlockPress; by `bootstrap.sh test-peers`) keeps the same tokens, errors per row equal to 9 digits
// at least.
#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "algorithms/mechanisms/token_scores.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench::methods::keydiff {
namespace {

constexpr double kUnitFloor = 1e-12;
constexpr double kCosineFloor = 1e-8;

struct Parameters : RankingParameters {
  Index block = 0;
};

// Minus the cosine of each candidate's key and the mean of their unit keys.
std::vector<double> unlikeness(ConstMatrix keys, const std::vector<Index>& candidates) {
  const Index d = keys.cols;
  std::vector<double> norms;
  std::vector<double> mean(static_cast<std::size_t>(d), 0.0);
  for (const Index token : candidates) {
    const double* key = keys.row(token);
    norms.push_back(std::sqrt(canonical_dot(key, key, d)));
    if (!std::isfinite(norms.back())) throw CellError("squares of the prompt's keys overflow");
    const double floored = std::max(norms.back(), kUnitFloor);
    for (Index k = 0; k < d; ++k) mean[static_cast<std::size_t>(k)] += key[k] / floored;
  }
  for (double& x : mean) x /= static_cast<double>(candidates.size());
  const double length =
      std::max(std::sqrt(canonical_dot(mean.data(), mean.data(), d)), kCosineFloor);
  std::vector<double> scores;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const double dot = canonical_dot(keys.row(candidates[c]), mean.data(), d);
    scores.push_back(-dot / (std::max(norms[c], kCosineFloor) * length));
  }
  return scores;
}

class KeyDiff final : public CompressOnce {
 public:
  KeyDiff(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt),
                     p.budget.of(context.prompt)),
        parts_(budget_parts(p, context.prompt)),
        block_(p.block) {}

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
      kept = within_budget(kept, parts_, unlikeness(context_.stream.keys, kept));
    }
    return kept;
  }

  BudgetParts parts_;
  Index block_;
};

}  // namespace

std::vector<double> key_difference_scores(const Stream& stream, PromptRange all,
                                          PromptRange tokens) {
  std::vector<Index> candidates;
  for (Index token = all.first; token < all.last; ++token) candidates.push_back(token);
  const std::vector<double> scores = unlikeness(stream.keys, candidates);
  return {scores.begin() + (tokens.first - all.first), scores.begin() + (tokens.last - all.first)};
}

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "keydiff";
  d.title = "tokens whose keys are least like the mean key";
  d.source = "KeyDiff (Park et al.)";
  d.parameters.add(ranking_fields());
  d.parameters.add({field("block", &Parameters::block,
                          "prompt tokens that come at a time, after each of which what exceeds the "
                          "budget is evicted; 0: all at once")});
  d.skip_reason = cannot_rank;
  d.most_kept = most_kept_ranked_once;
  d.only_appends = [](const Parameters&) { return true; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<KeyDiff>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::keydiff
