// curdkv: tokens whose keys and values are large next to those of their neighbours, approximate
// leverage scores; the first tokens stay. No query is looked at.
//
// Source: CurDKV (Sengupta et al., arXiv 2509.15038) by kvpress 8bb29b9, cur_press.py, with its
// local approximation.
//   local_window_size -> window, num_sinks -> sinks, leverage_type -> leverage
// Departures: a window whose squared norms are all 0 gives 0 (the code divides by 0). The random
// projection (use_random_leverage) is not here. On a sliding layer windows begin at the first
// visible token. Scores are not divided by their sum, which changes no rank.
// Compared on the shipped dump in double precision: kvpress 0.5.5 (CURPress; by
// tests/peers) keeps the same tokens, errors per row equal to 9 digits at least.
#include <algorithm>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::curdkv {
namespace {

enum class Leverage { kKey, kValue, kAverage, kProduct };

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 4;
  Index window = 16;
  Leverage leverage = Leverage::kProduct;
};

// Squared norms of tokens [range.first, range.last), each over the sum of its window.
std::vector<double> local_shares(ConstMatrix rows, PromptRange range, Index window) {
  std::vector<double> out;
  for (Index first = range.first; first < range.last; first += window) {
    const Index last = std::min(first + window, range.last);
    double sum = 0.0;
    for (Index token = first; token < last; ++token) {
      out.push_back(canonical_dot(rows.row(token), rows.row(token), rows.cols));
      sum += out.back();
    }
    for (auto share = out.end() - (last - first); share != out.end(); ++share) {
      *share = sum > 0.0 ? *share / sum : 0.0;
    }
  }
  return out;
}

double leverage_of(Leverage leverage, double key, double value) {
  switch (leverage) {
    case Leverage::kKey:
      return key;
    case Leverage::kValue:
      return value;
    case Leverage::kAverage:
      return (key + value) / 2.0;
    case Leverage::kProduct:
      return key * value;
  }
  return 0.0;
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "curdkv";
  d.title = "tokens whose keys and values are large next to their neighbours'";
  d.source = "CurDKV (Sengupta et al.)";
  d.derived = RankedPrompt::derived_keys();
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(), sinks_field(&P::sinks),
      field("window", &P::window, "consecutive tokens whose squared norms are divided by their sum")
          .at_least(1)
          .at_most(1e9),
      field("leverage", &P::leverage,
            {{"kv_product", Leverage::kProduct},
             {"kv_avg", Leverage::kAverage},
             {"key", Leverage::kKey},
             {"value", Leverage::kValue}},
            "score: of keys, of values, their mean or their product")};
  d.skip_reason = [](const P& p, const StreamShape& shape, Index prompt) {
    return cannot_compress(p.budget, p.sinks, 0, shape, prompt);
  };
  d.most_kept = [](const P& p, const StreamShape& shape, Index prompt) {
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), p.sinks.of(prompt), 0};
  };
  d.only_appends = [](const P&) { return true; };
  d.create = [](const P& p, const CellContext& context) {
    const BudgetParts parts{p.budget.of(context.prompt), p.sinks.of(context.prompt), 0};
    return std::make_unique<RankedPrompt>(context, parts, [p, context](PromptRange middle) {
      // Windows are of the whole visible prompt, sinks included.
      const PromptRange visible = visible_prompt(context.stream.shape, context.prompt);
      const std::vector<double> keys = local_shares(context.stream.keys, visible, p.window);
      const std::vector<double> values = local_shares(context.stream.values, visible, p.window);
      std::vector<double> scores;
      for (Index token = middle.first; token < middle.last; ++token) {
        const std::size_t j = token - visible.first;
        scores.push_back(leverage_of(p.leverage, keys[j], values[j]));
      }
      return scores;
    });
  };
  return d;
}

}  // namespace kvbench::methods::curdkv
