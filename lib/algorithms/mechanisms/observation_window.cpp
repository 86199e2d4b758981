#include "algorithms/mechanisms/observation_window.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/mechanisms/prompt_rows.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench {

WindowScores::Result WindowScores::compute(const SharedContext& context) const {
  const Index first_row = context.prompt - window;
  if (largest || row_weight != RowWeight::kEqual) {
    const StreamShape& shape = context.stream.shape;
    Result scores(shape.heads_per_kv, std::vector<double>(shape.tokens, 0.0));
    for_each_prompt_row(context, first_row, [&](const LogitBlock& block, std::size_t r) {
      add_row(context.stream, block, r, scores);
    });
    return scores;
  }
  ScoreSums sums = context.kernels.score_sums(context.stream, first_row, context.prompt);
  for (const auto& head : sums) {
    for (const double score : head) {
      if (!std::isfinite(score)) throw CellError("logits of the prompt overflow");
    }
  }
  return sums;
}

double WindowScores::scratch(const StreamShape& shape, Index prompt) const {
  const bool by_rows = largest || row_weight != RowWeight::kEqual;
  return by_rows ? prompt_rows_bytes(shape, prompt, window) : 0.0;
}

void WindowScores::add_row(const Stream& stream, const LogitBlock& block, std::size_t r,
                           Result& scores) const {
  const StreamShape& shape = stream.shape;
  const Index row = block.rows[r];
  const Index lo = shape.first_visible(row);
  const Index end = shape.visible_end(row);
  const double weight = row_weight == RowWeight::kVisible ? (row - lo) : 1.0;
  for (std::size_t g = 0; g < scores.size(); ++g) {
    const Index at = static_cast<Index>(r * scores.size() + g) * block.tokens;
    const double* x = block.logits.data() + at;
    const double* e = block.exps.data() + at;
    double sum = 0.0;
    for (Index j = lo; j < end; ++j) {
      if (!(x[j] < std::numeric_limits<double>::infinity())) {
        throw CellError("logits of the prompt overflow");
      }
      sum += e[j];
    }
    sum += canonical_exp(stream.sink(static_cast<int>(g)) - block.max_logit[r * scores.size() + g]);
    for (Index j = lo; j < end; ++j) {
      const double share = weight * (e[j] / sum);
      double& score = scores[g][j];
      score = largest ? std::max(score, share) : score + share;
    }
  }
}

std::vector<double> pooled(const std::vector<double>& scores, Index kernel, Pool pool) {
  const bool average = pool == Pool::kAverage;
  const Index n = std::ssize(scores);
  const Index reach = kernel / 2;
  std::vector<double> out(scores.size());
  for (Index j = 0; j < n; ++j) {
    const Index first = std::max<Index>(0, j - reach);
    const Index last = std::min(n, j + reach + 1);
    double total = average ? 0.0 : -std::numeric_limits<double>::infinity();
    for (Index i = first; i < last; ++i) {
      const double score = scores[i];
      total = average ? total + score : std::max(total, score);
    }
    out[j] = average ? total / kernel : total;
  }
  return out;
}

std::vector<double> observed_scores(const ObservationParameters& p, const ScoreSums& sums,
                                    PromptRange middle) {
  const bool group_first = p.order == PoolOrder::kGroupThenPool;
  std::vector<std::vector<double>> heads;
  for (const std::vector<double>& head : sums) {
    heads.emplace_back(head.begin() + middle.first, head.begin() + middle.last);
    if (!group_first) heads.back() = pooled(heads.back(), p.kernel, p.pool);
  }
  std::vector<double> scores;
  combine(p.group, heads, heads.front().size(), scores);
  if (group_first) scores = pooled(scores, p.kernel, p.pool);
  if (p.reduce == Reduce::kMean) {
    for (double& score : scores) score /= p.window;
  }
  return scores;
}

Index pyramid_selected(Index mean, Index window, Index beta, const StreamShape& shape, int layer,
                       Index prompt) {
  const Index length = visible_prompt(shape, prompt).size();
  if (length < 2 * mean) return mean;
  Index smallest = mean / beta;
  Index largest = 2 * mean - smallest;
  if (largest >= length - window) {
    largest = length - window;
    smallest = 2 * mean - largest;
  }
  const Index step = shape.n_layers > 1 ? (largest - smallest) / (shape.n_layers - 1) : 0;
  return std::max<Index>(0, largest - layer * step);
}

ObservationWindow::ObservationWindow(const ObservationParameters& p, const CellContext& context,
                                     Index selected)
    : CompressOnce(context, 0, p.window, p.budget.of(context.prompt)), p_(p), selected_(selected) {}

Derived ObservationWindow::derived() const {
  return {{"selected", keeps_whole_ ? prompt_.middle.size() : selected_}};
}

void ObservationWindow::compress_middle(PromptRange middle) {
  for (const Index token : best_tokens(scores(middle), middle.first, selected_)) {
    sketch_.add(SketchRow::exact(token));
  }
}

std::vector<Field<ObservationParameters>> observation_fields() {
  using P = ObservationParameters;
  return {budget_field(&P::budget).required(),
          field("window", &P::window,
                "last prompt rows whose attention ranks the other tokens; they are kept")
              .at_least(1)
              .at_most(1e9),
          field("kernel", &P::kernel, "width of the pooling along tokens, odd")
              .at_least(1)
              .at_most(1e6),
          field("pool", &P::pool, {{"max", Pool::kMax}, {"avg", Pool::kAverage}},
                "pooling along tokens")};
}

std::vector<Field<ObservationParameters>> observation_variant_fields() {
  using P = ObservationParameters;
  return {field("reduce", &P::reduce,
                {{"sum", Reduce::kSum}, {"mean", Reduce::kMean}, {"max", Reduce::kMax}},
                "how a token's scores at the rows of the window are combined")
              .later(),
          field("order", &P::order,
                {{"group_then_pool", PoolOrder::kGroupThenPool},
                 {"pool_then_group", PoolOrder::kPoolThenGroup}},
                "whether query heads are combined before pooling, or after")
              .later(),
          field("row_weight", &P::row_weight,
                {{"equal", RowWeight::kEqual}, {"visible", RowWeight::kVisible}},
                "weight of a row's scores: 1, or the number of tokens that it sees before its own "
                "(Finch)")
              .later()};
}

std::optional<std::pair<std::string, std::string>> even_kernel(Index kernel) {
  if (kernel % 2 == 1) return std::nullopt;
  return std::pair{"kernel", "must be odd, so that pooling is centred"};
}

std::optional<std::string> within_window(Index budget, Index window) {
  if (budget > window) return std::nullopt;
  return "budget of " + std::to_string(budget) + " tokens leaves none besides the window of " +
         std::to_string(window) + "; give a budget of at least " + std::to_string(window + 1) +
         (budget > 2 ? ", or a window of at most " + std::to_string(budget - 1) : "");
}

std::optional<std::pair<std::string, std::string>> invalid_observation(
    const ObservationParameters& p) {
  return even_kernel(p.kernel);
}

std::optional<std::string> cannot_observe(const ObservationParameters& p, const StreamShape& shape,
                                          Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const Index budget = p.budget.of(prompt);
  if (keeps_whole_prompt(budget, shape, prompt)) return std::nullopt;
  if (auto reason = within_window(budget, p.window)) return reason;
  return lacks_prompt_queries(prompt - p.window, shape, prompt);
}

BudgetParts observation_parts(const ObservationParameters& p, const StreamShape&, Index prompt) {
  return {p.budget.of(prompt), 0, p.window};
}

std::vector<SharedWork> observation_work(const ObservationParameters& p, const StreamShape& shape,
                                         Index prompt, std::uint32_t) {
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return {};
  return {WindowScores(p)};
}

}  // namespace kvbench
