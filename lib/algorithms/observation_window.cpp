#include "algorithms/observation_window.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace kvbench {
namespace {

// Shared work: softmax scores of the last `window` prompt rows.
struct WindowScores {
  Index window = 0;

  using Result = ScoreSums;
  Result compute(const SharedContext& context) const {
    Result sums =
        context.kernels.score_sums(context.stream, context.prompt - window, context.prompt);
    for (const auto& head : sums) {
      for (const double score : head) {
        if (!std::isfinite(score)) throw CellError("logits of the prompt overflow");
      }
    }
    return sums;
  }
  auto operator<=>(const WindowScores&) const = default;
};

// Pools with stride 1 and an odd kernel: `max` ignores what lies outside, `avg` counts it as zero.
std::vector<double> pooled(const std::vector<double>& scores, Index kernel, bool average) {
  const Index n = static_cast<Index>(scores.size());
  const Index reach = kernel / 2;
  std::vector<double> out(scores.size());
  for (Index j = 0; j < n; ++j) {
    const Index first = std::max<Index>(0, j - reach);
    const Index last = std::min(n, j + reach + 1);
    double total = average ? 0.0 : -std::numeric_limits<double>::infinity();
    for (Index i = first; i < last; ++i) {
      const double score = scores[static_cast<std::size_t>(i)];
      total = average ? total + score : std::max(total, score);
    }
    out[static_cast<std::size_t>(j)] = average ? total / static_cast<double>(kernel) : total;
  }
  return out;
}

}  // namespace

ObservationWindow::ObservationWindow(const ObservationParameters& p, const CellContext& context,
                                     Index selected)
    : CompressOnce(context, 0, p.window, p.budget.of(context.prompt)), p_(p), selected_(selected) {}

Derived ObservationWindow::derived() const {
  return {{"selected", keeps_whole_ ? prompt_.middle.size() : selected_}};
}

void ObservationWindow::compress_middle(PromptRange middle) {
  const ScoreSums& sums = context_.shared.get(WindowScores{p_.window});
  std::vector<double> scores(static_cast<std::size_t>(middle.size()));
  for (Index j = 0; j < middle.size(); ++j) {
    scores[static_cast<std::size_t>(j)] =
        combine(p_.group, context_.stream.shape.heads_per_kv, [&](int g) {
          return sums[static_cast<std::size_t>(g)][static_cast<std::size_t>(middle.first + j)];
        });
  }
  const std::vector<double> pools = pooled(scores, p_.kernel, p_.pool == Pool::kAverage);
  for (const Index token : best_tokens(pools, middle.first, selected_)) {
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

std::optional<std::pair<std::string, std::string>> invalid_observation(
    const ObservationParameters& p) {
  if (p.kernel % 2 == 1) return std::nullopt;
  return std::pair{"kernel", "must be odd, so that pooling is centred"};
}

std::optional<std::string> cannot_observe(const ObservationParameters& p, const StreamShape& shape,
                                          Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const Index budget = p.budget.of(prompt);
  if (keeps_whole_prompt(budget, shape, prompt)) return std::nullopt;
  if (budget <= p.window) {
    return "budget of " + std::to_string(budget) + " tokens leaves none besides the window of " +
           std::to_string(p.window);
  }
  if (shape.first_query > prompt - p.window) {
    return "needs the queries of prompt rows " + std::to_string(prompt - p.window) + " to " +
           std::to_string(prompt - 1) + ", but the dump has only rows from " +
           std::to_string(shape.first_query) + " on";
  }
  return std::nullopt;
}

std::vector<SharedWork> observation_work(const ObservationParameters& p, const StreamShape& shape,
                                         Index prompt, std::uint32_t) {
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return {};
  return {WindowScores{p.window}};
}

}  // namespace kvbench
