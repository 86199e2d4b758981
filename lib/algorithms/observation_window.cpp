#include "algorithms/observation_window.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/group_rule.hpp"
#include "core/error.hpp"

namespace kvbench {
namespace {

using Scores = std::vector<std::vector<double>>;

std::string scores_key(Index window) {
  return "softmax scores of the last " + std::to_string(window) + " prompt rows";
}

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

ObservationWindow::ObservationWindow(const Setting& setting, Index selected)
    : CompressOnce(setting, 0, setting.params.integer("window")), selected_(selected) {}

Derived ObservationWindow::derived() const {
  const bool whole = keeps_whole_prompt(setting_.params, setting_.stream.shape, setting_.prompt);
  return {{"selected", whole ? prompt_.middle.size() : selected_}};
}

void ObservationWindow::compress_middle(PromptRange middle) {
  const Params& params = setting_.params;
  const auto& sums = setting_.shared.get<Scores>(scores_key(params.integer("window")));
  const GroupRule rule = group_rule(params.word("group"));
  std::vector<double> scores(static_cast<std::size_t>(middle.size()));
  for (Index j = 0; j < middle.size(); ++j) {
    scores[static_cast<std::size_t>(j)] = combine(rule, setting_.stream.shape.group, [&](int g) {
      return sums[static_cast<std::size_t>(g)][static_cast<std::size_t>(middle.first + j)];
    });
  }
  const std::vector<double> pools =
      pooled(scores, params.integer("kernel"), params.word("pool") == "avg");
  for (const Index token : best_tokens(pools, middle.first, selected_)) {
    sketch_.add(SketchRow::exact(token));
  }
}

std::vector<Parameter> observation_window_parameters(Index window) {
  Parameter rows;
  rows.name = "window";
  rows.minimum = 1;
  rows.maximum = 1e9;
  rows.fallback = Value{window};
  rows.doc = "last prompt rows whose attention ranks the other tokens; they are kept";
  Parameter kernel;
  kernel.name = "kernel";
  kernel.minimum = 1;
  kernel.maximum = 1e6;
  kernel.fallback = Value{std::int64_t{7}};
  kernel.doc = "width of the pooling along tokens, odd";
  return {budget_parameter(), rows, kernel,
          choice_parameter("pool", {"max", "avg"}, "pooling along tokens"), group_parameter()};
}

void describe_observation_window(AlgorithmDescription& d) {
  d.fault = [](const Params& params) -> std::optional<std::pair<std::string, std::string>> {
    if (params.integer("kernel") % 2 == 1) return std::nullopt;
    return std::pair{std::string("kernel"), std::string("must be odd, so that pooling is centred")};
  };
  d.skip_reason = [](const Params& params, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(params, prompt)) return reason;
    if (keeps_whole_prompt(params, shape, prompt)) return std::nullopt;
    const Index budget = params.tokens("budget", prompt);
    const Index window = params.integer("window");
    if (budget <= window) {
      return "budget of " + std::to_string(budget) + " tokens leaves none beside the window of " +
             std::to_string(window);
    }
    if (shape.first_query > prompt - window) {
      return "needs the queries of prompt rows " + std::to_string(prompt - window) + " to " +
             std::to_string(prompt - 1) + ", and the dump holds them from row " +
             std::to_string(shape.first_query) + " on";
    }
    return std::nullopt;
  };
  d.shared_work = [](const Params& params, const StreamShape& shape, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work;
    if (keeps_whole_prompt(params, shape, prompt)) return work;
    const Index window = params.integer("window");
    work.push_back({scores_key(window), [window](const SharedSetting& setting) {
                      Scores sums = setting.kernels.score_sums(
                          setting.stream, setting.prompt - window, setting.prompt);
                      for (const auto& head : sums) {
                        for (const double score : head) {
                          if (!std::isfinite(score)) {
                            throw CellError("logits of the prompt overflow");
                          }
                        }
                      }
                      return std::any(std::move(sums));
                    }});
    return work;
  };
}

}  // namespace kvbench
