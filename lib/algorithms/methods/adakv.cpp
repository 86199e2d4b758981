// adakv: snapkv with a budget per KV head that follows from the scores of all heads of the layer;
// `budget` is the mean over these heads.
//
// Source: Ada-KV (Feng et al., arXiv 2407.11550; code FFY0/AdaKV efe4e2e,
// adaptive_snapkv/monkeypatch/snapkv_utils.py, update_kv_gqa); `semantics: kvpress` is kvpress
// 0.5.5 (AdaKVPress around SnapKVPress).
//   base_capacity -> budget, window_size -> window, kernel_size -> kernel, floor_alpha -> floor,
//   B = budget - window, head_adaptive_capacity -> counted, head_capacity -> selected
// Released: `counted` is what a head has of the layer's H B best scores, H KV heads; it keeps
//   round(counted (1 - floor) + int(B floor))  of its best, halves to even,
// besides the window, so that the heads' total may differ from H B by rounding. `kvpress`: the best
// int(budget floor) of each head (1 at least; the window counts as the best) and the best of all
// others, H budget together. `pyramid` (Ada-Pyramid): B of each layer is pyramidkv's, beta 20.
// Departures: a prompt of exactly `budget` tokens is kept whole, where the release may lose one to
// rounding; kvpress's window may lose tokens to the layer's largest score where the floor leaves
// no room for both; of equal scores those of the lower head come first, then the lower token;
// `score` may be another method's (in the window and expected_attention's sinks, kept whatever
// their scores, kvpress has the layer's largest). Its option `normalize` is left out. The total to
// compare is `layer_tokens`. Compared on the shipped dump in double precision by
// tests/peers: kvpress 0.5.5 keeps the same tokens as `semantics: kvpress` with pool avg (3
// settings, 9 heads) and with other scores and window 0 (5 settings), errors per row equal to 9
// digits.
#include <cmath>

#include "algorithms/mechanisms/layer_scores.hpp"

namespace kvbench::methods::adakv {
namespace {

enum class Semantics { kReleased, kKvpress };

struct Parameters : ScoreParameters {
  double floor = 0.2;
  Semantics semantics = Semantics::kReleased;
  bool pyramid = false;

  Parameters() { window = 32; }
};

struct Share {
  Index counted = 0;
  Index selected = 0;
};

// `exact`: tokens kept whatever their score.
Index mean_selected(const Parameters& p, const CellContext& context, Index exact) {
  constexpr Index kBeta = 20;
  const Index mean = p.budget.of(context.prompt) - exact;
  if (!p.pyramid) return mean;
  return pyramid_selected(mean, exact, kBeta, context.stream.shape, context.stream.id.layer,
                          context.prompt);
}

// Share of each head, by its place in the scope.
std::vector<Share> shares(const Parameters& p, const LayerScores::Result& layer, Index mean,
                          Index exact) {
  const bool released = p.semantics == Semantics::kReleased;
  Index forced = 0;
  if (!released && p.floor > 0.0) {
    const auto safe = static_cast<Index>(static_cast<double>(mean + exact) * p.floor);
    forced = std::max<Index>(0, std::max<Index>(1, safe) - exact);
  }
  const auto least = std::trunc(mean * p.floor);
  std::vector<Share> out;
  for (const Index counted : counts_of_best(layer, std::ssize(layer) * mean, forced)) {
    const double kept = counted * (1.0 - p.floor) + least;
    out.push_back({counted, released ? static_cast<Index>(std::nearbyint(kept)) : counted});
  }
  return out;
}

std::unique_ptr<Algorithm> create_adakv(const Parameters& p, const CellContext& context) {
  const CompressedPrompt parts = scored_prompt(p, context.stream.shape, context.prompt);
  const Index visible = parts.visible.size();
  const Index exact = visible - parts.middle.size();
  const Index mean = mean_selected(p, context, exact);
  const auto& layer = context.shared.get(LayerScores(p));
  // Number of tokens up to which every head keeps all, counted as the others are.
  const Index whole = std::max(p.budget.of(context.prompt), mean + exact);
  if (visible <= whole) {
    return std::make_unique<ChosenOnce>(context, sinks_of(p), p.window, whole, std::vector<Index>{},
                                        Derived{{"counted", parts.middle.size()},
                                                {"selected", parts.middle.size()},
                                                {"layer_tokens", std::ssize(layer) * visible}});
  }
  const HeadScores& own = scores_of(layer, context.stream.id.kv_head);
  const std::vector<Share> of_heads = shares(p, layer, mean, exact);
  Index total = 0;
  for (std::size_t h = 0; h < layer.size(); ++h) {
    total += exact + std::min(of_heads[h].selected, layer[h].middle.size());
  }
  const Share& share = of_heads[&own - layer.data()];
  return std::make_unique<ChosenOnce>(
      context, sinks_of(p), p.window, whole, own.scores, share.selected,
      Derived{{"counted", share.counted}, {"selected", share.selected}, {"layer_tokens", total}});
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "adakv";
  d.title = "snapkv with budgets over the KV heads of a layer";
  d.source = "Ada-KV (Feng et al.)";
  d.derived = ObservationWindow::derived_keys();
  d.derived.insert(d.derived.begin(),
                   {"counted", "scores of this KV head among the layer's best, before the floor"});
  d.derived.push_back(layer_tokens_key());
  d.parameters.add(scored_fields());
  d.parameters.add(
      {group_field(&Parameters::group),
       field("floor", &Parameters::floor,
             "least budget of a KV head, as a fraction of the mean budget")
           .at_most(1),
       field("semantics", &Parameters::semantics,
             {{"released", Semantics::kReleased}, {"kvpress", Semantics::kKvpress}},
             "released: the floor is added to a head's share; kvpress: the best tokens of a head, "
             "up to the floor, are kept whatever the other heads' scores"),
       field("pyramid", &Parameters::pyramid,
             "the mean falls from layer to layer as pyramidkv's")});
  d.parameters.add(observation_variant_fields());
  d.parameters.add({score_field()});
  d.validate = invalid_score;
  d.skip_reason = cannot_score;
  d.replay_scope = [](const Parameters&) { return ReplayScope::kLayer; };
  d.model_work = [](const Parameters& p, std::uint32_t) { return LayerScores(p); };
  d.ranks = [](const Parameters& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), sinks_of(p), p.window};
  };
  d.equal_budgets = ReplayScope::kHead;
  d.only_appends = [](const Parameters&) { return true; };
  d.for_less_memory =
      "its budget is a mean over the KV heads of a layer; give it as a number of tokens";
  d.create = create_adakv;
  return d;
}

}  // namespace kvbench::methods::adakv
