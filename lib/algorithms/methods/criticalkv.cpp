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
#include "algorithms/mechanisms/two_stages.hpp"

namespace kvbench::methods::criticalkv {
namespace {

enum class Heads { kUniform, kAdaptive };

struct Parameters : StagedParameters {
  Heads heads = Heads::kUniform;
};

bool adaptive(const Parameters& p) { return p.heads == Heads::kAdaptive; }

std::unique_ptr<Algorithm> create_criticalkv(const Parameters& p, const CellContext& context) {
  const Index budget = p.budget.of(context.prompt);
  const CompressedPrompt parts = scored_prompt(p, context.stream.shape, context.prompt);
  const PromptRange middle = parts.middle;
  Derived derived{{"selected", middle.size()}, {"by_score", middle.size()}};
  StagedChoice choice;
  if (parts.visible.size() > budget) {
    if (adaptive(p)) {
      const auto& layer = context.shared.get(LayerScores(p));
      const std::size_t head = &scores_of(layer, context.stream.id.kv_head) - layer.data();
      choice = choose_in_stages_of_layer(p, context.stream, context.prompt, layer, head);
    } else {
      const std::vector<double> scores =
          p.score == TokenScore::kSnapkv
              ? observed_scores(p, context.shared.get(WindowScores(p)), middle)
              : context.shared.get(PromptTokenScores(p));
      choice = choose_in_stages(p, context.stream, context.prompt, scores);
    }
    derived = {{"selected", std::ssize(choice.kept)}, {"by_score", choice.by_score}};
  }
  return std::make_unique<ChosenOnce>(context, sinks_of(p), p.window, budget,
                                      std::move(choice.kept), std::move(derived));
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
  d.parameters.add({group_field(&Parameters::group)});
  d.parameters.add(staged_fields());
  d.parameters.add({field(
      "heads", &Parameters::heads, {{"uniform", Heads::kUniform}, {"adaptive", Heads::kAdaptive}},
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
  d.skip_reason = cannot_stage;
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
