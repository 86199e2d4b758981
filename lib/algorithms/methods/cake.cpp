// cake: what the last prompt rows attend to on average, and with how much change from row to row.
// The budget of each layer follows from the entropy and the variance of its attention. `budget` is
// the mean over layers.
//
// Source: CAKE (Qin et al., arXiv 2503.12491; code antgroup/cakekv c4675ce, cake/utils.py
// adjust_budgets, cake/cake_cache.py, model/modify_llama.py).
//   A[w][P], the softmax of the last w = window rows at every query head of the layer; tokens
//   before the window alone count:
//   H = -sum A ln(A + 1e-10)                       -> entropy
//   V = sum over heads and tokens of the unbiased variance over the rows -> variance
//   b_l = trunc(p_l / sum p (budget - w) L), p_l = H^(1/tau1) V^(1/tau2), L layers of the scope
//   score = mean over rows + gamma unbiased variance over rows, pooled (avg) and averaged over the
//   group; the best b_l stay besides the window                 -> selected
// Budgets beyond a layer's tokens are cut and spread over the other layers, then what is missing to
// (budget - w) L, or too much, over those below their tokens, or above 1; where one pass does not
// reach that total it stays as it is. A prompt of at most budget + window tokens is kept whole.
// Departures: all layers are compressed at the prompt's end (the release evicts layer by layer
// while it reads the prompt); of equal scores the lower token is kept. The variant that decodes
// layer by layer is left out.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "algorithms/mechanisms/layer_scores.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::cake {
namespace {

struct Parameters {
  TokenCount budget;
  Index window = 32;
  double gamma = 200.0;
  Index kernel = 5;
  double tau1 = 1.0;
  double tau2 = 1.0;
  bool allocate = true;
};

// Attention of the window's rows to the tokens before it, of one query head.
struct WindowAttention {
  double entropy = 0.0;
  double variance = 0.0;       // summed over tokens
  std::vector<double> scores;  // per token: mean + gamma variance
};

WindowAttention watch(const Stream& stream, const LogitBlock& block, Index g, Index middle,
                      double gamma) {
  const Index heads_per_kv = stream.shape.heads_per_kv;
  const auto rows = std::ssize(block.rows);
  std::vector<const double*> e;
  std::vector<double> inverse;
  for (Index r = 0; r < rows; ++r) {
    e.push_back(block.exps.data() + (r * heads_per_kv + g) * block.tokens);
    double sum = 0.0;
    const Index end = stream.shape.visible_end(block.rows[r]);
    for (Index j = 0; j < end; ++j) sum += e.back()[j];
    sum += canonical_exp(stream.sink(static_cast<int>(g)) - block.max_logit[r * heads_per_kv + g]);
    inverse.push_back(1.0 / sum);
  }
  WindowAttention out;
  out.scores.resize(middle);
  std::vector<double> a(rows);
  for (Index j = 0; j < middle; ++j) {
    double mean = 0.0;
    for (std::size_t r = 0; r < a.size(); ++r) {
      a[r] = e[r][j] * inverse[r];
      mean += a[r];
      out.entropy -= a[r] * canonical_log(a[r] + 1e-10);
    }
    mean /= rows;
    double squares = 0.0;
    for (const double each : a) squares += (each - mean) * (each - mean);
    const double variance = squares / (rows - 1);
    out.variance += variance;
    out.scores[j] = mean + gamma * variance;
  }
  return out;
}

// Quantities that a layer's budget follows from, and each KV head's scores, pooled.
struct LayerAttention {
  int layer = 0;
  Index tokens = 0;         // tokens of the prompt before the window
  bool is_watched = false;  // the window has queries, and tokens before it
  double entropy = 0.0;
  double variance = 0.0;
  std::vector<HeadScores> heads;
};

// Model work: serves every budget and every tau.
struct ModelAttention {
  Index window = 0;
  Index kernel = 0;
  double gamma = 0.0;

  using Result = std::vector<LayerAttention>;
  Result compute(const ModelContext& context) const {
    Result result;
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      if (result.empty() || result.back().layer != stream.id.layer) {
        LayerAttention& fresh = result.emplace_back();
        fresh.layer = stream.id.layer;
        fresh.tokens = std::max<Index>(0, context.prompt - window);
      }
      LayerAttention& layer = result.back();
      HeadScores& head = layer.heads.emplace_back();
      head.kv_head = stream.id.kv_head;
      head.middle = {0, layer.tokens};
      if (layer.tokens == 0 || stream.shape.first_query > layer.tokens) return;
      add(stream, context.kernels, layer, head);
    });
    return result;
  }
  // Scores of every KV head; of one at a time, logits and exponentials of the window, and a few
  // numbers per token.
  double bytes(const ScopeSize& size) const {
    const Index of_token = size.streams + 2 * window * size.heads_per_kv + 3;
    return 8.0 * size.prompt * of_token;
  }
  auto operator<=>(const ModelAttention&) const = default;

 private:
  void add(const Stream& stream, const Kernels& kernels, LayerAttention& layer,
           HeadScores& head) const {
    std::vector<Index> rows(window);
    std::iota(rows.begin(), rows.end(), layer.tokens);
    layer.is_watched = true;
    LogitBlock block;
    kernels.logits(stream, std::move(rows), block);
    const Index heads_per_kv = stream.shape.heads_per_kv;
    head.scores.assign(layer.tokens, 0.0);
    for (Index g = 0; g < heads_per_kv; ++g) {
      const WindowAttention seen = watch(stream, block, g, layer.tokens, gamma);
      if (!std::isfinite(seen.entropy)) throw CellError("logits of the prompt overflow");
      layer.entropy += seen.entropy;
      layer.variance += seen.variance;
      const std::vector<double> scores = pooled(seen.scores, kernel, Pool::kAverage);
      for (std::size_t j = 0; j < scores.size(); ++j) head.scores[j] += scores[j];
    }
    for (double& score : head.scores) score /= heads_per_kv;
  }
};

ModelAttention model_attention(const Parameters& p) { return {p.window, p.kernel, p.gamma}; }

// x^(1 / tau); 0 for what is too small for a normal number.
double root(double x, double tau) {
  if (x < std::numeric_limits<double>::min()) return 0.0;
  return tau == 1.0 ? x : canonical_exp(canonical_log(x) / tau);
}

std::vector<double> preferences(const Parameters& p, const ModelAttention::Result& layers) {
  std::vector<double> out;
  for (const LayerAttention& layer : layers) {
    out.push_back(root(layer.entropy, p.tau1) * root(layer.variance, p.tau2));
  }
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& each : out) {
    each = sum > 0.0 ? each / sum : 1.0 / out.size();
  }
  return out;
}

// Adds `amount`, which may be negative, to the numbers at `places`, the remainder one by one to
// the first of them.
void spread(std::vector<Index>& numbers, const std::vector<std::size_t>& places, Index amount) {
  if (places.empty()) return;
  const Index sign = amount < 0 ? -1 : 1;
  const auto count = std::ssize(places);
  const Index left = sign * amount;
  for (Index k = 0; k < count; ++k) {
    numbers[places[k]] += sign * (left / count + (k < left % count));
  }
}

// How many tokens each layer selects, `mean` on average, none more than `most`.
std::vector<Index> layer_budgets(const std::vector<double>& preferences, Index mean, Index most) {
  const auto layers = std::ssize(preferences);
  std::vector<Index> out;
  Index excess = 0;
  for (const double preference : preferences) {
    const auto wanted =
        static_cast<Index>(preference * static_cast<double>(mean) * static_cast<double>(layers));
    out.push_back(std::min(wanted, most));
    excess += wanted - out.back();
  }
  const auto chosen = [&](const auto& is_chosen) {
    std::vector<std::size_t> places;
    for (std::size_t l = 0; l < out.size(); ++l) {
      if (is_chosen(out[l])) places.push_back(l);
    }
    return places;
  };
  const auto below = [&](Index tokens) { return tokens < most; };
  if (excess > 0) spread(out, chosen(below), excess);
  const Index missing = mean * layers - std::accumulate(out.begin(), out.end(), Index{0});
  if (missing > 0) spread(out, chosen(below), missing);
  if (missing < 0) spread(out, chosen([](Index tokens) { return tokens > 1; }), missing);
  for (Index& tokens : out) tokens = std::clamp<Index>(tokens, 0, most);
  return out;
}

std::unique_ptr<Algorithm> create_cake(const Parameters& p, const CellContext& context) {
  const auto& layers = context.shared.get(model_attention(p));
  const auto own = std::find_if(layers.begin(), layers.end(), [&](const LayerAttention& layer) {
    return layer.layer == context.stream.id.layer;
  });
  if (own == layers.end()) throw CellError("its layer is not part of the scope");
  const std::size_t place = own - layers.begin();
  const Index budget = p.budget.of(context.prompt);
  // A prompt that is kept whole asks for no queries.
  const bool all_watched = std::all_of(layers.begin(), layers.end(),
                                       [](const LayerAttention& each) { return each.is_watched; });
  std::vector<double> preference;
  if (all_watched) preference = preferences(p, layers);
  Index selected = own->tokens;
  std::vector<double> scores;
  if (context.prompt > budget + p.window) {
    if (!all_watched) {
      throw CellError("a layer of the scope lacks the queries of the window's rows");
    }
    const Index mean = budget - p.window;
    selected = p.allocate ? layer_budgets(preference, mean, own->tokens)[place] : mean;
    scores = scores_of(own->heads, context.stream.id.kv_head).scores;
  }
  Derived derived{{"selected", selected}};
  if (own->is_watched) {
    derived.emplace_back("entropy", own->entropy);
    derived.emplace_back("variance", own->variance);
  }
  if (all_watched) derived.emplace_back("preference", preference[place]);
  return std::make_unique<ChosenOnce>(context, 0, p.window, budget + p.window, scores, selected,
                                      std::move(derived));
}

std::optional<std::string> reason_to_skip_cake(const Parameters& p, const StreamShape& shape,
                                               Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  if (shape.slides()) {
    return "cake shares out budgets over layers that see the whole prompt, and this one has a "
           "sliding "
           "window";
  }
  const Index budget = p.budget.of(prompt);
  if (prompt <= budget + p.window) return std::nullopt;
  if (auto reason = within_window(budget, p.window)) return reason;
  return lacks_prompt_queries(prompt - p.window, shape, prompt);
}

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "cake";
  d.title = "attended and changing tokens, budgets over layers by entropy and variance";
  d.source = "CAKE (Qin et al.)";
  d.derived = ObservationWindow::derived_keys();
  d.derived.push_back(
      {"entropy", "H: entropy of the layer's attention to tokens before the window"});
  d.derived.push_back(
      {"variance",
       "V: variance of the layer's attention over the window's rows, summed over tokens"});
  d.derived.push_back({"preference", "the layer's fraction of all layers' preferences"});
  d.parameters = {
      budget_field(&P::budget).required(),
      field("window", &P::window,
            "last prompt rows whose attention ranks the other tokens; they are kept")
          .at_least(2)
          .at_most(1e9),
      field("gamma", &P::gamma, "weight of the variance over rows relative to their mean"),
      field("kernel", &P::kernel, "width of the pooling along tokens, odd")
          .at_least(1)
          .at_most(1e6),
      field("tau1", &P::tau1, "a layer's preference has the entropy's power 1 / tau1").above(0),
      field("tau2", &P::tau2, "a layer's preference has the variance's power 1 / tau2").above(0),
      field("allocate", &P::allocate, "false: the same budget in every layer")};
  d.validate = [](const P& p) { return even_kernel(p.kernel); };
  d.skip_reason = reason_to_skip_cake;
  d.replay_scope = [](const P&) { return ReplayScope::kModel; };
  d.model_work = [](const P& p, std::uint32_t) { return model_attention(p); };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), 0, p.window};
  };
  d.equal_budgets = ReplayScope::kHead;  // its scope is the model as it is
  d.only_appends = [](const P&) { return true; };
  d.for_less_memory = "its budget is a mean over layers; give it as a number of tokens";
  d.create = create_cake;
  return d;
}

}  // namespace kvbench::methods::cake
