// criticalkv: snapkv in two stages. Part of the budget goes to the best scores, the rest to the
// best products of score and the size of what a token's value adds to an answer.
//
// Source: CriticalKV (Feng et al., arXiv 2502.03805) as kvpress 0.5.5 has it (CriticalKVPress
// around SnapKVPress; `heads: adaptive` is CriticalAdaKVPress).
//   first_stage_ratio -> share, alpha_safeguard -> 0.2, epsilon -> epsilon, |W_O v|_1 -> nu
// nu is a mean over the group: of the dump's wo_v_l1 (`norm: wo_l1`); value_l1 and value_l2 are
// ablations that need only the values. Scores are means over the window's rows (`reduce: sum`,
// whose sums are divided by their number before epsilon is added), or `reduce: max`. The first
// stage keeps the k1 best scores of the tokens before the window,
//   first: whole   k1 = max(0, max(1, int(budget share)) - window), 0 with share 0: the window
//                  counts as its best tokens
//   first: middle  k1 = int((budget - window) share)
// and the second the best (score + epsilon) nu of the others up to the budget. `adaptive`: as adakv
// with semantics kvpress and floor 0.2, each head has a budget of its own, and at least its best
// int(0.2 budget) tokens are kept by score.
// `score` may be another method's, expected_attention's without its norms of values; kept whatever
// their score are then the window, which may be 0, and that method's sinks.
// Departures: the window is always kept (in kvpress, where int(budget share) < window, tokens of
// the window compete in the second stage with the layer's largest score); of equal values the lower
// token is kept.
// Compared on the shipped dump in double precision by `tests/peers/run.sh`: kvpress, its norm
// replaced by that of the values, keeps the same tokens with pool avg (2 settings of each press, 9
// heads) and by other scores (3 settings), errors per row equal to 9 digits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/mechanisms/layer_scores.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench::methods::criticalkv {
namespace {

enum class Norm { kWoL1, kValueL1, kValueL2 };
enum class First { kWhole, kMiddle };
enum class Heads { kUniform, kAdaptive };

constexpr double kFloor = 0.2;  // floor of CriticalAdaKV

struct Parameters : ScoreParameters {
  double share = 0.5;
  double epsilon = 1e-4;
  Norm norm = Norm::kWoL1;
  First first = First::kWhole;
  Heads heads = Heads::kUniform;

  Parameters() {
    window = 32;
    value_norm = false;  // it has its own
  }
};

bool adaptive(const Parameters& p) { return p.heads == Heads::kAdaptive; }

// nu of a token.
double value_size(const Parameters& p, const Stream& stream, Index token) {
  if (p.norm == Norm::kWoL1) {
    const double mean = combine(GroupRule::kMean, stream.shape.heads_per_kv,
                                [&](int g) { return stream.wo_v_l1[g][token]; });
    if (mean >= 0.0) return mean;
    throw CellError("wo_v_l1 of the dump is negative at token " + std::to_string(token));
  }
  const double* v = stream.values.row(token);
  if (p.norm == Norm::kValueL2) return std::sqrt(canonical_dot(v, v, stream.shape.dv));
  double sum = 0.0;
  for (Index k = 0; k < stream.shape.dv; ++k) sum += std::fabs(v[k]);
  return sum;
}

// How many of a head's tokens stay, the window's among them, and how many of these by score alone.
struct Stages {
  Index budget = 0;
  Index by_score = 0;
};

Index part(Index tokens, double share) {
  return static_cast<Index>(static_cast<double>(tokens) * share);
}

// `exact`: tokens kept whatever their score.
Stages stages(const Parameters& p, Index budget, Index safe, Index exact) {
  Index first = part(budget, p.share);
  if (p.share > 0.0) first = std::max<Index>(1, first);
  first -= exact;
  if (p.first == First::kMiddle) first = part(budget - exact, p.share);
  return {budget, std::max({Index{0}, first, safe - exact})};
}

// The two stages over a head's scores; sums over the window's rows count as means.
std::vector<Index> kept_by_stages(const Parameters& p, const Stream& stream, const Stages& stages,
                                  const std::vector<double>& sums, PromptRange middle,
                                  Index exact) {
  std::vector<Index> kept = best_tokens(sums, middle.first, stages.by_score);
  const bool are_sums = p.score == TokenScore::kSnapkv && p.reduce == Reduce::kSum;
  std::vector<double> products(sums.size());
  for (std::size_t j = 0; j < sums.size(); ++j) {
    const double score = are_sums ? sums[j] / p.window : sums[j];
    products[j] = (score + p.epsilon) * value_size(p, stream, middle.first + static_cast<Index>(j));
  }
  for (const Index token : kept) {
    products[token - middle.first] = -std::numeric_limits<double>::infinity();
  }
  const auto rest = stages.budget - exact - std::ssize(kept);
  for (const Index token : best_tokens(products, middle.first, rest)) kept.push_back(token);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

std::unique_ptr<Algorithm> create_criticalkv(const Parameters& p, const CellContext& context) {
  const Index budget = p.budget.of(context.prompt);
  const CompressedPrompt parts = scored_prompt(p, context.stream.shape, context.prompt);
  const PromptRange middle = parts.middle;
  const Index exact = parts.visible.size() - middle.size();
  Derived derived{{"selected", middle.size()}, {"by_score", middle.size()}};
  std::vector<Index> kept;
  if (parts.visible.size() > budget) {
    std::vector<double> sums;
    Stages two = stages(p, budget, 0, exact);
    if (adaptive(p)) {
      const auto& layer = context.shared.get(LayerScores(p));
      const HeadScores& own = scores_of(layer, context.stream.id.kv_head);
      const Index safe = std::max<Index>(1, part(budget, kFloor));
      const auto counts = counts_of_best(layer, std::ssize(layer) * (budget - exact),
                                         std::max<Index>(0, safe - exact));
      two = stages(p, exact + counts[&own - layer.data()], safe, exact);
      sums = own.scores;
    } else if (p.score == TokenScore::kSnapkv) {
      sums = observed_scores(p, context.shared.get(WindowScores(p)), middle);
    } else {
      sums = context.shared.get(PromptTokenScores(p));
    }
    kept = kept_by_stages(p, context.stream, two, sums, middle, exact);
    derived = {{"selected", std::ssize(kept)}, {"by_score", two.by_score}};
  }
  return std::make_unique<ChosenOnce>(context, sinks_of(p), p.window, budget, std::move(kept),
                                      std::move(derived));
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "criticalkv";
  d.title = "snapkv, then scores times the size of the values";
  d.source = "CriticalKV (Feng et al.)";
  d.derived = ObservationWindow::derived_keys();
  d.derived.push_back({"by_score", "selected tokens that their scores alone keep"});
  d.parameters.add(scored_fields());
  d.parameters.add(
      {group_field(&Parameters::group),
       field(
           "share", &Parameters::share,
           "fraction of the budget that scores alone decide; the rest goes by (score + epsilon) nu")
           .at_most(1),
       field("epsilon", &Parameters::epsilon, "added to a score before it is multiplied by nu"),
       field("norm", &Parameters::norm,
             {{"wo_l1", Norm::kWoL1}, {"value_l1", Norm::kValueL1}, {"value_l2", Norm::kValueL2}},
             "nu, the size of a token: 1-norm of what the output projection makes of its value, "
             "mean over the group (wo_v_l1 of the dump), or 1-norm or 2-norm of the value"),
       field("first", &Parameters::first, {{"whole", First::kWhole}, {"middle", First::kMiddle}},
             "base of `share`: the whole budget, whose first tokens are the window, or the budget "
             "without the window"),
       field("heads", &Parameters::heads,
             {{"uniform", Heads::kUniform}, {"adaptive", Heads::kAdaptive}},
             "uniform: every KV head keeps the budget; adaptive: it is shared out over the heads "
             "of the layer as adakv does")});
  d.parameters.add(observation_variant_fields());
  d.parameters.add({score_field()});
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (adaptive(p) && p.budget.is_unsolved()) {
      return std::pair{"budget",
                       "cannot be given as memory with heads: adaptive, where what a KV head keeps "
                       "follows from the data; give a number of tokens"};
    }
    return invalid_score(p);
  };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (p.norm == Norm::kWoL1 && !shape.wo_v_l1) {
      return "norm: wo_l1 needs the dataset wo_v_l1 of the layer, which the dump does not hold; "
             "norm: value_l1 needs nothing";
    }
    return cannot_score(p, shape, prompt);
  };
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt,
                     std::uint32_t seed) {
    if (adaptive(p) || keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) {
      return std::vector<SharedWork>{};
    }
    if (p.score != TokenScore::kSnapkv) return std::vector<SharedWork>{PromptTokenScores(p)};
    return observation_work(p, shape, prompt, seed);
  };
  d.replay_scope = [](const Parameters& p) {
    return adaptive(p) ? ReplayScope::kLayer : ReplayScope::kHead;
  };
  d.model_work = [](const Parameters& p, std::uint32_t) { return LayerScores(p); };
  d.most_kept = [](const Parameters& p, const StreamShape& shape,
                   Index prompt) -> std::optional<KeptCounts> {
    if (adaptive(p)) return std::nullopt;
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.create = create_criticalkv;
  return d;
}

}  // namespace kvbench::methods::criticalkv
