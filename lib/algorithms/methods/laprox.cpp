// laprox: the size of a token's column of the last prompt rows' attention, times the size of what
// the output projection makes of its value, ranked over all KV heads and layers. The budget is a
// mean over them.
//
// Source: LaProx (Mai and Kim, arXiv 2605.07234). The beginning of the paper alone was read, and no
// code of its authors was found. Three programs of others that cite its definitions agree on
//   s_hi = |A_h[window, i]|_2 |v_i W_O^h|_2, average pooling over 7 tokens, window 32
//   s / (sum of the layer's s), then the best L H (budget - window) of all, besides the windows
// They differ in what a KV head's group of query heads gives. `average: attention`: A is the mean
// attention of the group, and the second factor the mean over it, as the paper is reported to say.
// `average: products`: the mean of the products of each query head.
// Pooling runs over the columns of the tokens before the window. Equal scores rank by layer, then
// head, then token. A prompt of at most `budget` tokens is kept whole.
// `norm: wo_l2` needs the output projection `wo` of the dump; the others are ablations.
#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/layer_scores.hpp"
#include "algorithms/mechanisms/prompt_rows.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::laprox {
namespace {

enum class Average { kAttention, kProducts };
enum class Norm { kWoL2, kWoL1, kValueL2 };

struct Parameters : ObservationParameters {
  Average average = Average::kAttention;
  Norm norm = Norm::kWoL2;

  Parameters() {
    window = 32;
    pool = Pool::kAverage;
  }
  auto operator<=>(const Parameters&) const = default;
};

// Sizes of the values of `tokens` behind W_O of query head g.
std::vector<double> value_sizes(const Parameters& p, const Stream& stream, int g,
                                PromptRange tokens) {
  std::vector<double> sizes;
  const Index dv = stream.shape.dv;
  if (p.norm == Norm::kWoL1) {
    const double* norms = stream.wo_v_l1[g];
    return {norms + tokens.first, norms + tokens.last};
  }
  if (p.norm == Norm::kValueL2) {
    for (Index j = tokens.first; j < tokens.last; ++j) {
      sizes.push_back(std::sqrt(canonical_dot(stream.values.row(j), stream.values.row(j), dv)));
    }
    return sizes;
  }
  // |v W|^2 = v W W^T v^T: dv^2 numbers a token in place of dv hidden.
  const UnfilledDoubles projection = stream.output_projection(g);
  const Index hidden = stream.shape.hidden;
  AlignedDoubles columns(dv * hidden);
  for (Index k = 0; k < dv; ++k) {
    for (Index c = 0; c < hidden; ++c) columns[c * dv + k] = projection[k * hidden + c];
  }
  AlignedDoubles gram(dv * dv, 0.0);
  const MutableMatrix square{gram.data(), dv, dv};
  add_gram({columns.data(), hidden, dv}, square);
  mirror_upper(square);
  AlignedDoubles images(tokens.size() * dv, 0.0);
  const ConstMatrix values{stream.values.row(tokens.first), tokens.size(), dv,
                           stream.values.stride};
  multiply(values, square, {images.data(), tokens.size(), dv});
  for (Index j = 0; j < tokens.size(); ++j) {
    const double squared = canonical_dot(values.row(j), images.data() + j * dv, dv);
    sizes.push_back(std::sqrt(std::max(0.0, squared)));
  }
  return sizes;
}

// |A[window, i]|_2 of tokens before the window: of each query head, or of their mean attention.
std::vector<std::vector<double>> column_sizes(const Parameters& p, const SharedContext& context,
                                              PromptRange middle) {
  const Stream& stream = context.stream;
  const auto heads = static_cast<std::size_t>(stream.shape.heads_per_kv);
  const bool mean = p.average == Average::kAttention;
  std::vector<std::vector<double>> sizes(mean ? 1 : heads, std::vector<double>(middle.size(), 0.0));
  for_each_prompt_row(context, middle.last, [&](const LogitBlock& block, std::size_t r) {
    const Index row = block.rows[r];
    std::vector<double> attention(middle.size(), 0.0);  // summed over the heads so far
    for (std::size_t g = 0; g < heads; ++g) {
      const std::size_t place = r * heads + g;
      const double* e = block.exps.data() + static_cast<Index>(place) * block.tokens;
      double sum = 0.0;
      for (Index j = 0; j < stream.shape.visible_end(row); ++j) sum += e[j];
      sum += canonical_exp(stream.sink(static_cast<int>(g)) - block.max_logit[place]);
      if (!std::isfinite(sum)) throw CellError("logits of the prompt overflow");
      for (Index j = 0; j < middle.size(); ++j) {
        const double share = e[middle.first + j] / sum;
        if (mean) {
          attention[j] += share;
        } else {
          sizes[g][j] += share * share;
        }
      }
    }
    for (Index j = 0; mean && j < middle.size(); ++j) {
      const double share = attention[j] / static_cast<double>(heads);
      sizes[0][j] += share * share;
    }
  });
  for (std::vector<double>& of_head : sizes) {
    for (double& size : of_head) size = std::sqrt(size);
    of_head = pooled(of_head, p.kernel, p.pool);
  }
  return sizes;
}

std::vector<double> products(const Parameters& p, const SharedContext& context,
                             PromptRange middle) {
  const auto columns = column_sizes(p, context, middle);
  std::vector<double> scores(middle.size(), 0.0);
  const int heads = context.stream.shape.heads_per_kv;
  for (int g = 0; g < heads; ++g) {
    const std::vector<double> values = value_sizes(p, context.stream, g, middle);
    const std::vector<double>& column = columns[p.average == Average::kAttention ? 0 : g];
    for (std::size_t j = 0; j < scores.size(); ++j) scores[j] += column[j] * values[j] / heads;
  }
  return scores;
}

// Model work: serves every budget.
struct ModelRanks {
  Parameters p;  // its budget is 0

  explicit ModelRanks(const Parameters& of) : p(of) { p.budget = 0; }

  struct Head : HeadScores {
    int layer = 0;
  };
  struct Result {
    std::vector<Head> heads;
    // Heads of all scores, the best first.
    std::vector<std::int32_t> ranked;
    bool is_watched = true;  // all layers have the window's queries
  };

  Result compute(const ModelContext& context) const {
    Result out;
    const PromptRange middle{0, std::max<Index>(0, context.prompt - p.window)};
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      Head& head = out.heads.emplace_back();
      head.layer = stream.id.layer;
      head.kv_head = stream.id.kv_head;
      head.middle = middle;
      out.is_watched = out.is_watched && stream.shape.first_query <= middle.last;
      if (middle.size() == 0 || stream.shape.first_query > middle.last) return;
      head.scores = products(p, {stream, context.prompt, context.kernels}, middle);
    });
    rank(out);
    return out;
  }

  // Scores and ranks of all KV heads, and logits and values of one.
  double bytes(const ScopeSize& size) const {
    const double rows = 16.0 * static_cast<double>(kPromptNumbersAtOnce);
    return 8.0 * size.prompt * (4 * size.streams + 3 * size.heads_per_kv + size.d) + rows;
  }
  auto operator<=>(const ModelRanks&) const = default;

 private:
  static void rank(Result& out) {
    struct Place {
      double score;
      std::int32_t head;
    };
    std::vector<Place> places;
    for (auto first = out.heads.begin(); first != out.heads.end();) {
      const int layer = first->layer;
      const auto last = std::find_if(first, out.heads.end(),
                                     [&](const Head& head) { return head.layer != layer; });
      double sum = 0.0;
      for (auto head = first; head != last; ++head) {
        for (const double score : head->scores) sum += score;
      }
      if (!std::isfinite(sum)) throw CellError("scores of the prompt overflow");
      for (; first != last; ++first) {
        const auto place = static_cast<std::int32_t>(first - out.heads.begin());
        for (double& score : first->scores) {
          if (sum > 0.0) score /= sum;
          places.push_back({score, place});
        }
      }
    }
    std::ranges::stable_sort(places, std::ranges::greater{}, &Place::score);
    for (const Place& place : places) out.ranked.push_back(place.head);
  }
};

std::unique_ptr<Algorithm> create_laprox(const Parameters& p, const CellContext& context) {
  const auto& model = context.shared.get(ModelRanks(p));
  const StreamId& id = context.stream.id;
  const auto own = std::ranges::find_if(model.heads, [&](const ModelRanks::Head& head) {
    return head.layer == id.layer && head.kv_head == id.kv_head;
  });
  if (own == model.heads.end()) throw CellError("its KV head is not part of the scope");
  const Index budget = p.budget.of(context.prompt);
  Index selected = own->middle.size();
  if (context.prompt > budget) {
    if (!model.is_watched) {
      throw CellError("a layer of the scope lacks the queries of the window's rows");
    }
    const Index all =
        std::min<Index>(std::ssize(model.ranked), std::ssize(model.heads) * (budget - p.window));
    selected = std::count(model.ranked.begin(), model.ranked.begin() + all,
                          static_cast<std::int32_t>(own - model.heads.begin()));
  }
  return std::make_unique<ChosenOnce>(context, 0, p.window, budget, own->scores, selected,
                                      Derived{{"selected", selected}});
}

std::optional<std::string> reason_to_skip_laprox(const Parameters& p, const StreamShape& shape,
                                                 Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  if (shape.slides()) {
    return "laprox ranks tokens over layers that see the whole prompt, and this one has a sliding "
           "window";
  }
  if (p.norm == Norm::kWoL2 && shape.hidden == 0) {
    return "norm: wo_l2 needs the output projection, which runs read from a dump with wo, of a "
           "layer whose keys no other layer reads; norm: value_l2 needs nothing";
  }
  if (p.norm == Norm::kWoL1 && !shape.wo_v_l1) {
    return "norm: wo_l1 needs the dataset wo_v_l1 of the layer, which the dump does not hold; "
           "norm: value_l2 needs nothing";
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
  d.id = "laprox";
  d.title = "attended tokens by their values behind W_O, one ranking over the model";
  d.source = "LaProx (Mai and Kim)";
  d.derived = ObservationWindow::derived_keys();
  d.parameters.add(observation_fields());
  d.parameters.add(
      {field("average", &P::average,
             {{"attention", Average::kAttention}, {"products", Average::kProducts}},
             "attention: query heads of a group are averaged before the norms; products: each "
             "head's product of norms is"),
       field("norm", &P::norm,
             {{"wo_l2", Norm::kWoL2}, {"wo_l1", Norm::kWoL1}, {"value_l2", Norm::kValueL2}},
             "size of a token's value: 2-norm of what the output projection makes of it (wo of the "
             "dump), 1-norm of it (wo_v_l1), or 2-norm of the value")});
  d.validate = [](const P& p) { return even_kernel(p.kernel); };
  d.skip_reason = reason_to_skip_laprox;
  d.replay_scope = [](const P&) { return ReplayScope::kModel; };
  d.model_work = [](const P& p, std::uint32_t) { return ModelRanks(p); };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), 0, p.window};
  };
  d.equal_budgets = ReplayScope::kHead;
  d.only_appends = [](const P&) { return true; };
  d.for_less_memory = "its budget is a mean over layers; give it as a number of tokens";
  d.create = create_laprox;
  return d;
}

}  // namespace kvbench::methods::laprox
