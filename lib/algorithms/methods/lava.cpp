// lava: what the last prompt rows attend to, weighted by the largest value of the KV head, ranked
// over all KV heads of a layer. The budget of each layer follows from the entropy of these scores.
// `budget` is the mean over layers.
//
// Source: LAVa (Shen et al., arXiv 2509.09754) by its released code, MGDDestiny/Lava 71d3cc8,
// adaptive_snapkv/monkeypatch/snapkv_utils.py (LavaKVCluster) and adaptive_mistral_hijack_lava.py;
// the paper's abstract alone was read.
//   base_capacity -> budget, window_size -> window, kernel_size -> kernel, pooling -> pool,
//   floor_alpha -> floor
//   s_hj = max over the group of pooled mean attention of the window's rows, times the largest
//   1-norm of the head's values before the window
//   e_l = -sum p ln(p + 1e-16) / ln(count), p = s / (sum s + 1e-16), over heads and tokens
//   b_l = trunc(e_l / sum e (budget - window) L), L layers of the scope  -> layer_budget
//   head h keeps round(0.8 c_h + trunc(0.2 budget)) of its best, floor 0.2, halves to even, c_h of
//   its scores being among the layer's H b_l best, and the window        -> counted, selected
// As released: a layer whose b_l exceeds its tokens keeps them all, and no layer takes over what it
// leaves; the floor is a part of `budget`, not of b_l, so that layers of small budgets keep more.
// Departures: all layers are compressed at the prompt's end (the release begins while it reads the
// prompt, with the layers read so far, and ends at the same sets); a prompt of at most `budget`
// tokens is kept whole; of equal scores those of the lower head come first, then the lower token.
// Its option `normalize`, off in its scripts, and forms without groups are left out.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "algorithms/mechanisms/layer_scores.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::lava {
namespace {

constexpr double kLeast = 1e-16;  // as released

struct Parameters : ObservationParameters {
  double floor = 0.2;

  Parameters() { window = 32; }
};

struct LayerRanks {
  int layer = 0;
  bool is_watched = false;  // the window has queries, and tokens before it
  double entropy = 0.0;     // e_l
  std::vector<HeadScores> heads;
};

// The entropy of all heads' scores over that of equal ones.
double entropy_of(const std::vector<HeadScores>& heads) {
  double sum = 0.0;
  Index count = 0;
  for (const HeadScores& head : heads) {
    for (const double score : head.scores) sum += score;
    count += std::ssize(head.scores);
  }
  double entropy = 0.0;
  for (const HeadScores& head : heads) {
    for (const double score : head.scores) {
      const double p = score / (sum + kLeast);
      entropy -= p * canonical_log(p + kLeast);
    }
  }
  return count > 1 ? entropy / canonical_log(count) : 0.0;
}

double largest_l1(ConstMatrix values, PromptRange tokens) {
  double largest = 0.0;
  for (Index token = tokens.first; token < tokens.last; ++token) {
    const double* value = values.row(token);
    double norm = 0.0;
    for (Index k = 0; k < values.cols; ++k) norm += std::fabs(value[k]);
    largest = std::max(largest, norm);
  }
  return largest;
}

// Model work: serves every budget and floor.
struct ModelRanks {
  Index window = 0;
  Index kernel = 0;
  Pool pool = Pool::kMax;

  using Result = std::vector<LayerRanks>;
  Result compute(const ModelContext& context) const {
    ScoreParameters rule;
    rule.window = window;
    rule.kernel = kernel;
    rule.pool = pool;
    rule.group = GroupRule::kMax;
    rule.reduce = Reduce::kMean;
    rule.order = PoolOrder::kPoolThenGroup;
    const PromptRange middle{0, std::max<Index>(0, context.prompt - window)};
    Result result;
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      if (result.empty() || result.back().layer != stream.id.layer) {
        result.emplace_back().layer = stream.id.layer;
      }
      HeadScores& head = result.back().heads.emplace_back();
      head.kv_head = stream.id.kv_head;
      head.middle = middle;
      if (middle.size() == 0 || stream.shape.first_query > middle.last) return;
      result.back().is_watched = true;
      head.scores = token_scores(rule, {stream, context.prompt, context.kernels});
      const double largest = largest_l1(stream.values, middle);
      for (double& score : head.scores) score *= largest;
    });
    for (LayerRanks& layer : result) {
      layer.entropy = entropy_of(layer.heads);
      if (!std::isfinite(layer.entropy)) throw CellError("scores of the prompt overflow");
    }
    return result;
  }
  // Scores of every KV head; of one at a time, those of its query heads.
  double bytes(const ScopeSize& size) const {
    return 8.0 * size.prompt * (2 * size.streams + 2 * size.heads_per_kv + 3);
  }
  auto operator<=>(const ModelRanks&) const = default;
};

ModelRanks model_ranks(const Parameters& p) { return {p.window, p.kernel, p.pool}; }

Index layer_budget(const ModelRanks::Result& layers, const LayerRanks& own, Index mean) {
  double sum = 0.0;
  for (const LayerRanks& layer : layers) sum += layer.entropy;
  const double share = sum > 0.0 ? own.entropy / sum : 1.0 / std::ssize(layers);
  return static_cast<Index>(share * static_cast<double>(mean * std::ssize(layers)));
}

std::unique_ptr<Algorithm> create_lava(const Parameters& p, const CellContext& context) {
  const auto& layers = context.shared.get(model_ranks(p));
  const auto own = std::ranges::find(layers, context.stream.id.layer, &LayerRanks::layer);
  if (own == layers.end()) throw CellError("its layer is not part of the scope");
  const HeadScores& head = scores_of(own->heads, context.stream.id.kv_head);
  const Index budget = p.budget.of(context.prompt);
  const Index tokens = head.middle.size();
  Index counted = tokens;
  Index selected = tokens;
  Index of_layer = tokens;
  if (context.prompt > budget) {
    if (!std::ranges::all_of(layers, &LayerRanks::is_watched)) {
      throw CellError("a layer of the scope lacks the queries of the window's rows");
    }
    of_layer = layer_budget(layers, *own, budget - p.window);
    if (of_layer <= tokens) {
      const std::size_t place = &head - own->heads.data();
      counted = counts_of_best(own->heads, std::ssize(own->heads) * of_layer, 0)[place];
      const double least = std::trunc(budget * p.floor);
      const double kept = counted * (1.0 - p.floor) + least;
      selected = std::min(tokens, static_cast<Index>(std::nearbyint(kept)));
    }
  }
  Derived derived{{"counted", counted}, {"selected", selected}, {"layer_budget", of_layer}};
  if (own->is_watched) derived.emplace_back("layer_entropy", own->entropy);
  return std::make_unique<ChosenOnce>(context, 0, p.window, budget, head.scores, selected,
                                      std::move(derived));
}

std::optional<std::string> reason_to_skip_lava(const Parameters& p, const StreamShape& shape,
                                               Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  if (shape.slides()) {
    return "lava distributes budgets over layers that see the whole prompt, and this one has a "
           "sliding window";
  }
  const Index budget = p.budget.of(prompt);
  if (prompt <= budget) return std::nullopt;
  if (auto reason = within_window(budget, p.window)) return reason;
  return lacks_prompt_queries(prompt - p.window, shape, prompt);
}

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "lava";
  d.title = "attended tokens by the largest value, budgets over KV heads and layers";
  d.source = "LAVa (Shen et al.)";
  d.derived = {{"counted", "scores of this KV head among the layer's best, before the floor"},
               {"selected", "tokens of the prompt before the window that are kept"},
               {"layer_budget", "b_l: mean budget of the layer's KV heads, without the window"},
               {"layer_entropy", "e_l: entropy of the layer's scores over that of equal ones"}};
  d.parameters.add(observation_fields());
  d.parameters.add(
      {field("floor", &P::floor, "least budget of a KV head, as a fraction of the mean budget")
           .at_most(1)});
  d.validate = [](const P& p) { return even_kernel(p.kernel); };
  d.skip_reason = reason_to_skip_lava;
  d.replay_scope = [](const P&) { return ReplayScope::kModel; };
  d.model_work = [](const P& p, std::uint32_t) { return model_ranks(p); };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), 0, p.window};
  };
  d.equal_budgets = ReplayScope::kHead;  // its scope is the model as it is
  d.only_appends = [](const P&) { return true; };
  d.for_less_memory = "its budget is a mean over layers; give it as a number of tokens";
  d.create = create_lava;
  return d;
}

}  // namespace kvbench::methods::lava
