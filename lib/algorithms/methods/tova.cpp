// tova: the tokens that the newest row attends to most; after every decoded row the least attended
// of more than `budget` tokens goes.
//
// Source: TOVA (Oren et al., arXiv 2401.06104; code schwartz-lab-NLP/TOVA 9c7d09b,
// src/tova_cache.py); `semantics: once` is kvpress 0.5.5 (TOVAPress).
//   cache_size -> budget, attention weights of the last row, averaged over heads -> w
// A row's weights are a softmax over the tokens that are kept; the row's own token is one of them
// and has no protection. The prompt's last row alone ranks the prompt. `scope: layer`, the released
// one: the mean is over all query heads of the layer, and one set is kept in all its KV heads;
// `head`: over those of a KV head, as in EasyKV. `once`: the prompt's last token stays, the
// budget - 1 best of the others besides it, and nothing goes while decoding.
// Departures: of equal weights the later token goes (torch's topk keeps any).
// Compared on the shipped dump in double precision by `tests/peers/run.sh`: kvpress 0.5.5
// keeps the same tokens as `once`, `scope: layer` (2 budgets, 9 heads), errors per row equal to 9
// digits.
#include <vector>

#include "algorithms/mechanisms/accumulated_scores.hpp"
#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/model_scope.hpp"

namespace kvbench::methods::tova {
namespace {

enum class Scope { kHead, kLayer };
enum class Semantics { kReleased, kOnce };

struct Parameters {
  TokenCount budget;
  Scope scope = Scope::kLayer;
  Semantics semantics = Semantics::kReleased;
};

bool once(const Parameters& p) { return p.semantics == Semantics::kOnce; }
bool whole_layer(const Parameters& p) { return p.scope == Scope::kLayer; }

// Every row's weights replace those before; nothing is stored of them.
Scoring last_row() {
  Scoring scoring;
  scoring.decay = 0.0;
  scoring.numbers_per_head = 0;
  scoring.prompt_rows = 1;
  return scoring;
}

bool scores_prompt(const Parameters& p, const StreamShape& shape, Index prompt) {
  return last_row().scores_prompt(visible_prompt(shape, prompt).size(), p.budget.of(prompt));
}

// Model work: which tokens are kept in all heads of a layer.
struct LayerTrace {
  TokenCount budget;
  bool prompt_alone = false;

  using Result = ModelTrace;
  Result compute(const ModelContext& context) const {
    const Index tokens = budget.of(context.prompt);
    return prompt_alone ? trace_prompt(context, last_row(), tokens, 1, 0)
                        : trace_model(context, last_row(), tokens, 0, 0);
  }
  double bytes(const ScopeSize& size) const {
    if (prompt_alone) return 0.0;
    return trace_bytes(size, budget.of(size.prompt));
  }
  auto operator<=>(const LayerTrace&) const = default;
};

LayerTrace layer_trace(const Parameters& p) { return {p.budget, once(p)}; }

Derived kept_numbers(const Parameters& p, Index prompt) {
  return {{"budget", p.budget.of(prompt)}, {"recent", Index{once(p) ? 1 : 0}}};
}

class TovaOnce final : public CompressOnce {
 public:
  TovaOnce(const Parameters& p, const CellContext& context)
      : CompressOnce(context, 0, 1, p.budget.of(context.prompt)), p_(p) {}

  Derived derived() const override { return kept_numbers(p_, context_.prompt); }
  std::vector<double> scores(PromptRange middle) const override {
    const ScoreSums& sums = context_.shared.get(PromptScores(last_row(), context_.seed));
    return combined_scores(sums, GroupRule::kMean, middle);
  }
  Index selected() const override { return p_.budget.of(context_.prompt) - 1; }

 protected:
  void compress_middle(PromptRange middle) override {
    for (const Index token : best()) {
      if (token < middle.last) sketch_.add(SketchRow::exact(token));
    }
  }

 private:
  std::vector<Index> best() const {
    if (whole_layer(p_)) return context_.shared.get(layer_trace(p_)).prompt_kept;
    return best_tokens(scores(prompt_.middle), prompt_.middle.first, selected());
  }

  Parameters p_;
};

std::optional<std::string> reason_to_skip_tova(const Parameters& p, const StreamShape& shape,
                                               Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const Index first = scores_prompt(p, shape, prompt) ? prompt - 1 : prompt;
  if (once(p) && first == prompt) return std::nullopt;
  return lacks_queries(first, shape);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "tova";
  d.title = "tokens that the newest row attends to";
  d.source = "TOVA (Oren et al.)";
  d.derived = ranked_subset_keys();
  d.parameters = {
      budget_field(&Parameters::budget).required(),
      field("scope", &Parameters::scope, {{"layer", Scope::kLayer}, {"head", Scope::kHead}},
            "layer: one set in all selected KV heads of a layer, by the mean over their query "
            "heads; head: a set per KV head"),
      field("semantics", &Parameters::semantics,
            {{"released", Semantics::kReleased}, {"once", Semantics::kOnce}},
            "released: a token is evicted after every decoded row; once: only at the end of the "
            "prompt, whose last token is kept")};
  d.needs = [](const Parameters& p) {
    const bool scores = !once(p) && !whole_layer(p);
    return Needs{.row_logits = scores, .kept_tokens_only = scores};
  };
  d.replay_scope = [](const Parameters& p) {
    return whole_layer(p) ? ReplayScope::kLayer : ReplayScope::kHead;
  };
  d.model_work = [](const Parameters& p, std::uint32_t) { return layer_trace(p); };
  d.skip_reason = reason_to_skip_tova;
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt,
                     std::uint32_t seed) {
    if (whole_layer(p) || !scores_prompt(p, shape, prompt)) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{PromptScores(last_row(), seed)};
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape,
                   Index prompt) -> std::optional<KeptCounts> {
    if (once(p)) return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
    return most_kept_by_score(p.budget, 0, shape, prompt);
  };
  d.ranks = [](const Parameters& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), 0, 1};
  };
  d.not_ranked = [](const Parameters& p) -> std::optional<std::string> {
    if (!whole_layer(p)) return std::nullopt;
    return "scope: layer chooses tokens by itself; give scope: head and same_in: layer";
  };
  d.only_appends = [](const Parameters& p) { return once(p); };
  d.create = [](const Parameters& p, const CellContext& context) -> std::unique_ptr<Algorithm> {
    const RankedSubset kept{.budget = p.budget.of(context.prompt)};
    if (once(p)) return std::make_unique<TovaOnce>(p, context);
    if (!whole_layer(p)) return std::make_unique<AccumulatedScores>(context, last_row(), kept);
    return std::make_unique<TraceFollower>(context, context.shared.get(layer_trace(p)), 0,
                                           kept_numbers(p, context.prompt));
  };
  return d;
}

}  // namespace kvbench::methods::tova
