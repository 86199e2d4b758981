#include "algorithms/mechanisms/paging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

using Method = std::shared_ptr<const AlgorithmDescription>;

const ParameterTable<PagingParameters>& table() {
  using P = PagingParameters;
  static const ParameterTable<P> fields{
      field("pages", &P::pages,
            "tokens of a page, which leave or stay together; 1: each token for itself")
          .at_least(1)
          .at_most(1e9)
          .later(),
      field("page_score", &P::page_score, {{"mean", PageScore::kMean}, {"max", PageScore::kMax}},
            "score of a page: mean or largest score of its tokens")
          .later(),
      field("same_in", &P::same_in,
            {{"head", ReplayScope::kHead},
             {"layer", ReplayScope::kLayer},
             {"model", ReplayScope::kModel}},
            "KV heads that keep the same tokens, by the mean of their normalised scores: each for "
            "itself, those of a layer, or those of all selected layers")
          .later()};
  return fields;
}

PagingParameters paging_of(const Params& params) { return table().read(params); }

bool shares_choice(const Params& params) { return paging_of(params).same_in != ReplayScope::kHead; }

CompressOnce& ranking(Algorithm& algorithm) { return dynamic_cast<CompressOnce&>(algorithm); }

// Model work: scores of the middle of the prompt that all KV heads of a scope rank by; empty if the
// prompt is kept whole. Pages do not matter.
struct SameScores {
  Method method;
  std::vector<std::pair<std::string, Value>> params;
  ReplayScope scope = ReplayScope::kLayer;
  std::uint32_t seed = 0;

  using Result = std::vector<double>;
  Result compute(const ModelContext& context) const {
    Result sums;
    Index heads = 0;
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      if (auto reason = reason_to_skip(*method, all(), stream.shape, context.prompt)) {
        throw CellError("a KV head of the scope does not run: " + *reason);
      }
      SharedResults shared;
      const SharedContext setting{stream, context.prompt, context.kernels};
      for (const SharedWork& work :
           method->shared_work(all(), stream.shape, context.prompt, seed)) {
        shared.add(work, setting);
      }
      const auto choice =
          method->create(all(), {stream, context.prompt, seed, context.kernels, shared});
      const CompressOnce& ranked = ranking(*choice);
      if (ranked.keeps_whole()) return;
      const std::vector<double> scores = ranked.scores(ranked.prompt().middle);
      if (heads++ == 0) sums.resize(scores.size(), 0.0);
      if (sums.size() != scores.size()) throw CellError("its layers see different tokens");
      add_shares(scores, sums);
    });
    for (double& sum : sums) sum /= heads;
    return sums;
  }
  // Scores of one head and sums, and what the method itself needs for one head.
  double bytes(const ScopeSize& size) const {
    StreamShape shape;
    shape.tokens = size.tokens;
    shape.d = shape.dv = size.d;
    shape.heads_per_kv = static_cast<int>(size.heads_per_kv);
    double sum = 8.0 * (size.prompt * (4 + size.heads_per_kv));
    for (const SharedWork& work : method->shared_work(all(), shape, size.prompt, seed)) {
      sum += work.bytes() + work.scratch(shape, size.prompt);
    }
    return sum;
  }
  auto operator<=>(const SameScores&) const = default;

 private:
  Params all() const {
    Params out;
    for (const auto& [name, value] : params) out.set(name, value);
    return out;
  }
};

SameScores same_scores(const Method& method, const Params& params, std::uint32_t seed) {
  SameScores work{method, {}, paging_of(params).same_in, method->randomised(params) ? seed : 0};
  for (const auto& entry : params.entries()) {
    if (!is_paging_parameter(entry.first)) work.params.push_back(entry);
  }
  return work;
}

class ChosenRows final : public CompressOnce {
 public:
  ChosenRows(const CellContext& context, const CompressedPrompt& prompt,
             std::vector<SketchRow> middle)
      : CompressOnce(context, prompt.sinks, prompt.recent), middle_rows_(std::move(middle)) {}

 protected:
  void compress_middle(PromptRange) override {
    for (const SketchRow& row : middle_rows_) sketch_.add(row);
  }

 private:
  std::vector<SketchRow> middle_rows_;
};

std::unique_ptr<Algorithm> create(const Method& method, const Params& params,
                                  const CellContext& context) {
  const PagingParameters p = paging_of(params);
  auto choice = method->create(params, context);
  const CompressOnce& ranked = ranking(*choice);
  const CompressedPrompt& prompt = ranked.prompt();
  if (ranked.keeps_whole() || prompt.middle.size() == 0) return choice;
  const PromptPages pages(prompt, p.pages);
  const Index budget = prompt.visible.size() - prompt.middle.size() + ranked.selected();
  const std::vector<Index> chosen =
      pages.best(p.same_in == ReplayScope::kHead
                     ? ranked.scores(prompt.middle)
                     : context.shared.get(same_scores(method, params, context.seed)),
                 prompt.middle.first, budget, p.page_score);
  SketchRow sampled = SketchRow::exact(0);
  if (ranked.stands_for_all() && !chosen.empty()) {
    sampled.w_num = sampled.w_den = pages.competing.size() / static_cast<double>(chosen.size());
    sampled.weight_numbers = 1;
  }
  std::vector<SketchRow> rows;
  const auto add_held = [&](Index first, Index last) {
    for (Index token = first; token < last; ++token) rows.push_back(SketchRow::exact(token));
  };
  add_held(prompt.middle.first, pages.competing.first);
  for (const Index token : chosen) {
    sampled.token = static_cast<std::int32_t>(token);
    rows.push_back(sampled);
  }
  add_held(pages.competing.last, prompt.middle.last);
  return std::make_unique<ChosenRows>(context, prompt, std::move(rows));
}

using Invalid = std::optional<std::pair<std::string, std::string>>;

Invalid invalid(const AlgorithmDescription& method, const Params& params) {
  const PagingParameters p = paging_of(params);
  const bool shares = p.same_in != ReplayScope::kHead;
  if (p.pages == 1 && p.page_score != PageScore::kMean) {
    return std::pair{"page_score", "ranks pages, but pages is 1; give pages, or leave it out"};
  }
  if (p.pages == 1 && !shares) return std::nullopt;
  const std::string name = p.pages > 1 ? "pages" : "same_in";
  if (const auto reason = method.not_ranked(params)) {
    return std::pair{name, "needs one score per token: " + *reason};
  }
  if (!method.only_appends(params)) {
    return std::pair{name, fmt::format("needs a choice that is made once, and {} evicts while it "
                                       "decodes with these parameters; leave it out",
                                       method.id)};
  }
  if (shares && method.replay_scope(params) != ReplayScope::kHead) {
    return std::pair{"same_in", fmt::format("needs KV heads that decide for themselves, and those "
                                            "of {} decide together already; leave it out",
                                            method.id)};
  }
  if (p.same_in > method.equal_budgets) {
    return std::pair{"same_in",
                     fmt::format("must be layer: budgets of {} differ between layers", method.id)};
  }
  return std::nullopt;
}

std::optional<std::string> too_small(const AlgorithmDescription& method, const Params& params,
                                     const StreamShape& shape, Index prompt) {
  const PagingParameters p = paging_of(params);
  if (p.same_in == ReplayScope::kModel && shape.slides()) {
    return "same_in: model needs layers that see the whole prompt, and this one has a sliding "
           "window";
  }
  const BudgetParts parts = method.ranks(params, shape, prompt);
  if (p.pages == 1 || keeps_whole_prompt(parts.budget, shape, prompt)) return std::nullopt;
  const PromptPages pages(compressed_prompt(shape, prompt, parts.sinks, parts.recent), p.pages);
  if (pages.held <= parts.budget) return std::nullopt;
  return fmt::format(
      "budget of {} tokens is smaller than the pages of {} tokens that hold the first and last "
      "tokens of the prompt, {} tokens together, which are always kept; raise budget to {}",
      parts.budget, p.pages, pages.held, pages.held);
}

std::optional<KeptCounts> most_kept(const AlgorithmDescription& method, const Params& params,
                                    const StreamShape& shape, Index prompt) {
  const auto plain = method.most_kept(params, shape, prompt);
  const BudgetParts parts = method.ranks(params, shape, prompt);
  if (!plain || paging_of(params).pages == 1 || keeps_whole_prompt(parts.budget, shape, prompt)) {
    return plain;
  }
  const PromptPages pages(compressed_prompt(shape, prompt, parts.sinks, parts.recent),
                          paging_of(params).pages);
  const Index ranked = pages.size * pages.stay(parts.budget);
  KeptCounts kept = whole_tokens(pages.held + ranked + shape.tokens - prompt);
  kept.bookkeeping = plain->bookkeeping > 0 ? ranked : 0;
  return kept;
}

}  // namespace

const std::vector<Parameter>& paging_parameters() {
  static const std::vector<Parameter> rows = table().rows();
  return rows;
}

bool is_paging_parameter(const std::string& name) {
  return std::ranges::find(paging_parameters(), name, &Parameter::name) !=
         paging_parameters().end();
}

PromptPages::PromptPages(const CompressedPrompt& prompt, Index size) : size(size) {
  const PromptRange& middle = prompt.middle;
  // A page that the sliding window cuts has its visible tokens alone.
  const bool cut = middle.first == prompt.visible.first;
  const Index whole = (middle.first + size - 1) / size * size;
  competing.first = cut ? middle.first : std::min(whole, middle.last);
  competing.last = std::max(competing.first, middle.last / size * size);
  held = prompt.visible.size() - competing.size();
}

Index PromptPages::stay(Index budget) const {
  if (competing.size() == 0) return 0;
  const Index all = competing.last / size - competing.first / size;
  return std::clamp<Index>((budget - held) / size, 0, all);
}

std::vector<Index> PromptPages::best(const std::vector<double>& scores, Index first, Index budget,
                                     PageScore rule) const {
  std::vector<PromptRange> pages;
  std::vector<double> ranks;
  for (Index token = competing.first; token < competing.last;) {
    const PromptRange page{token, (token / size + 1) * size};
    const auto begin = scores.begin() + (page.first - first);
    double score = *begin;
    for (auto next = begin + 1; next != begin + page.size(); ++next) {
      check_ranked(*next);
      score = rule == PageScore::kMax ? std::max(score, *next) : score + *next;
    }
    ranks.push_back(rule == PageScore::kMax ? score : score / page.size());
    pages.push_back(page);
    token = page.last;
  }
  std::vector<Index> tokens;
  for (const Index k : best_tokens(ranks, 0, stay(budget))) {
    for (Index token = pages[k].first; token < pages[k].last; ++token) tokens.push_back(token);
  }
  return tokens;
}

void add_shares(const std::vector<double>& scores, std::vector<double>& sums) {
  check_ranked(scores);
  if (scores.empty()) return;
  const double least = *std::min_element(scores.begin(), scores.end());
  double total = 0.0;
  for (const double score : scores) total += score - least;
  if (total == 0.0) return;
  for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += (scores[j] - least) / total;
}

AlgorithmDescription with_paging(AlgorithmDescription plain) {
  const auto method = std::make_shared<const AlgorithmDescription>(plain);
  AlgorithmDescription d = std::move(plain);
  d.parameters.insert(d.parameters.end(), paging_parameters().begin(), paging_parameters().end());
  d.validate = [method](const Params& params) -> Invalid {
    if (auto error = method->validate(params)) return error;
    return invalid(*method, params);
  };
  d.skip_reason = [method](const Params& params, const StreamShape& shape, Index prompt) {
    auto reason = method->skip_reason(params, shape, prompt);
    return reason ? reason : too_small(*method, params, shape, prompt);
  };
  d.shared_work = [method](const Params& params, const StreamShape& shape, Index prompt,
                           std::uint32_t seed) {
    if (shares_choice(params)) return std::vector<SharedWork>{};
    return method->shared_work(params, shape, prompt, seed);
  };
  d.replay_scope = [method](const Params& params) {
    return std::max(paging_of(params).same_in, method->replay_scope(params));
  };
  d.model_work = [method](const Params& params, std::uint32_t seed) -> ModelWork {
    if (shares_choice(params)) return same_scores(method, params, seed);
    return method->model_work(params, seed);
  };
  if (method->most_kept) {
    d.most_kept = [method](const Params& params, const StreamShape& shape, Index prompt) {
      return most_kept(*method, params, shape, prompt);
    };
  }
  d.create = [method](const Params& params, const CellContext& context) {
    const PagingParameters p = paging_of(params);
    if (p.pages == 1 && p.same_in == ReplayScope::kHead) return method->create(params, context);
    return create(method, params, context);
  };
  return d;
}

}  // namespace kvbench
