// keyformer: h2o whose scores are a softmax of noisy logits at a growing temperature.
//
// Source: Keyformer (Adnan et al.), Algorithm 1 and its ablations.
//   k -> budget, w -> floor(k recent_fraction), zeta -> noise (gumbel; gaussian, constant, none of
//   Table 4), tau_init, tau_end -> tau_init, tau_end, T -> gen_len, f_theta -> scores per query
//   head, alpha (Fig. 5) -> damping
// Departures and resolutions: mu = 0.5772 and sigma = 1.2825 are the mean and deviation of the
// standard Gumbel -ln(-ln U), which is what is drawn; `draw: token` draws once per query head and
// token (Algorithm 1), `draw: row` afresh for every row (the released code); a factor alpha has two
// readings, `damping_form: new` f += alpha s and `old` f = alpha f + s; k + 1 tokens are attended
// before one goes. `semantics: released` is the published code's mask: after the prompt the key set
// is frozen, a token that leaves the recent window is gone, token P - w is in neither set.
// Noted, not done: evicting every m-th row only, attending to k tokens, age-normalised scores.
// Compared on the shipped dump in double precision, once, through 256 decoded tokens and with one
// query head per KV head: keyformer-llm f327831 (attention.py of MPT) attends to what `semantics:
// released`, `draw: row` does, given the same Gumbel draws (2 budgets, 2 seeds, and noise none; 9
// heads): errors per row equal to 12 digits. `semantics: paper` has no published code to be
// compared with.
#include "algorithms/mechanisms/accumulated_scores.hpp"
#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/model_scope.hpp"

namespace kvbench::methods::keyformer {
namespace {

enum class Draw { kToken, kRow };
enum class DampingForm { kNew, kOld };
enum class Scope { kLayer, kModel };
enum class Semantics { kPaper, kReleased };

struct Parameters {
  TokenCount budget;
  double recent_fraction = 0.3;
  double tau_init = 1.0;
  double tau_end = 2.0;
  std::optional<Index> gen_len;  // none: n - P
  LogitNoise::Kind noise = LogitNoise::Kind::kGumbel;
  Draw draw = Draw::kToken;
  double damping = 1.0;
  DampingForm damping_form = DampingForm::kNew;
  Scope scope = Scope::kLayer;
  Positions positions = Positions::kOriginal;
  GroupRule group = GroupRule::kMean;
  Semantics semantics = Semantics::kPaper;

  auto operator<=>(const Parameters&) const = default;
};

bool whole_model(const Parameters& p) { return p.scope == Scope::kModel; }
bool released(const Parameters& p) { return p.semantics == Semantics::kReleased; }

RankedSubset subset(const Parameters& p, Index prompt) {
  const Index budget = p.budget.of(prompt);
  return {budget, recent_window(budget, p.recent_fraction), p.group, p.positions};
}

Scoring scoring(const Parameters& p, Index tokens, Index prompt) {
  Scoring out;
  out.noise = p.noise;
  out.fresh_noise = p.draw == Draw::kRow;
  out.tau_init = p.tau_init;
  out.gen_len = p.gen_len.value_or(tokens - prompt);
  out.tau_step = (p.tau_end - p.tau_init) / out.gen_len;
  (p.damping_form == DampingForm::kNew ? out.gain : out.decay) = p.damping;
  out.numbers_per_head = 2;  // score and noise
  return out;
}

Derived numbers(const RankedSubset& kept, const Scoring& rule) {
  return {{"budget", kept.budget}, {"recent", kept.recent}, {"gen_len", rule.gen_len}};
}

// Frozen keys and a sliding window; scores matter in the prompt alone.
class ReleasedKeyformer final : public Algorithm {
 public:
  ReleasedKeyformer(const CellContext& context, const Scoring& scoring, const RankedSubset& subset)
      : context_(context), scoring_(scoring), subset_(subset) {
    sketch_.cache_positions = subset.positions == Positions::kCache;
  }

  void finish_prompt() override {
    const PromptRange prompt = visible_prompt(context_.stream.shape, context_.prompt);
    if (prompt.size() == 0) return;
    const ScoreSums& sums = context_.shared.get(PromptScores(scoring_, context_.seed));
    keys_ = best_of_prompt(context_, sums, subset_, subset_.recent);
  }

  void extend(Index, Index last) override {
    if (last <= context_.prompt) return;
    const Index row = last - 1;
    const Index lo = context_.stream.shape.first_visible(row);
    const Index window = std::max(lo, last - subset_.recent);
    sketch_.clear();
    for (const Index token : keys_) {
      if (token >= lo && token < window) sketch_.add(SketchRow::exact(token));
    }
    sketch_.add_exact(window, last);
    sketch_.bookkeeping =
        sketch_.size() * context_.stream.shape.heads_per_kv * scoring_.numbers_per_head;
  }

  Derived derived() const override { return numbers(subset_, scoring_); }

 private:
  const CellContext context_;
  Scoring scoring_;
  RankedSubset subset_;
  std::vector<Index> keys_;  // ascending
};

std::optional<KeptCounts> most_kept(const Parameters& p, const StreamShape& shape, Index prompt) {
  const Index numbers_per_head = scoring(p, shape.tokens, prompt).numbers_per_head;
  if (!released(p)) return most_kept_by_score(p.budget, numbers_per_head, shape, prompt);
  // Keys are all visible when decoding starts; without keys the window alone may still grow.
  const RankedSubset kept = subset(p, prompt);
  const Index middle = visible_prompt(shape, prompt).size() - kept.recent;
  const Index keys = std::clamp<Index>(middle, 0, kept.budget - kept.recent);
  const Index tokens = keys > 0 ? keys + kept.recent : std::min(kept.recent, most_visible(shape));
  return exact_tokens(tokens, tokens * shape.heads_per_kv * numbers_per_head);
}

// Model work: which tokens are kept in all layers and heads.
struct SharedTrace {
  Parameters p;
  std::uint32_t seed = 0;

  using Result = ModelTrace;
  Result compute(const ModelContext& context) const {
    const RankedSubset kept = subset(p, context.prompt);
    return trace_model(context, scoring(p, context.tokens, context.prompt), kept.budget,
                       kept.recent, seed);
  }
  double bytes(const ScopeSize& size) const { return trace_bytes(size, p.budget.of(size.prompt)); }
  auto operator<=>(const SharedTrace&) const = default;
};

std::optional<std::string> reason_to_skip_keyformer(const Parameters& p, const StreamShape& shape,
                                                    Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  if (released(p) && subset(p, prompt).recent == 0) {
    return "semantics: released attends to the new token as part of the recent window, and "
           "recent_fraction leaves 0 tokens";
  }
  if (whole_model(p) && shape.slides()) {
    return "scope: model keeps one set in layers that see the whole prompt, and this one has a "
           "sliding window";
  }
  const Scoring rule = scoring(p, shape.tokens, prompt);
  const double last_tau = rule.tau_init + (shape.tokens - prompt) * rule.tau_step;
  if (!(last_tau > 0.0)) {
    return "tau falls from tau_init by the same step at every decode row, and is no longer "
           "positive at the last one: gen_len is too short";
  }
  return no_rope(p.positions, shape);
}

ParameterTable<Parameters> parameter_table() {
  using P = Parameters;
  using Noise = LogitNoise::Kind;
  return {
      budget_field(&P::budget).required(),
      recent_fraction_field(&P::recent_fraction),
      field("tau_init", &P::tau_init, "temperature in the prompt").above(0),
      field("tau_end", &P::tau_end, "temperature after gen_len decode rows").above(0),
      field("gen_len", &P::gen_len,
            "decode rows over which tau goes from tau_init to tau_end; auto: n - P")
          .at_least(1)
          .or_word("auto"),
      field("noise", &P::noise,
            {{"gumbel", Noise::kGumbel},
             {"gaussian", Noise::kGaussian},
             {"constant", Noise::kConstant},
             {"none", Noise::kNone}},
            "noise that is added to the logits"),
      field("draw", &P::draw, {{"token", Draw::kToken}, {"row", Draw::kRow}},
            "noise once per token, or afresh for every row"),
      field("damping", &P::damping, "alpha of damping_form; 1: no damping"),
      field(
          "damping_form", &P::damping_form,
          {{"new", DampingForm::kNew}, {"old", DampingForm::kOld}},
          "how a row's scores s are added to the sums f: new: f += alpha s; old: f = alpha f + s"),
      field("scope", &P::scope, {{"layer", Scope::kLayer}, {"model", Scope::kModel}},
            "layer: scores per KV head's stream; model: one score and one kept set over all "
            "selected layers and heads"),
      positions_field(&P::positions),
      group_field(&P::group),
      field("semantics", &P::semantics,
            {{"paper", Semantics::kPaper}, {"released", Semantics::kReleased}},
            "paper: a token is evicted after every row; released: the key set is frozen after the "
            "prompt"),
  };
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "keyformer";
  d.title = "tokens of largest accumulated noisy attention, and recent ones";
  d.source = "Keyformer Algorithm 1 and its ablations";
  d.derived = ranked_subset_keys();
  d.derived.push_back({"gen_len", "decode rows over which tau goes from tau_init to tau_end"});
  d.parameters = parameter_table();
  d.randomised = [](const Parameters& p) {
    return p.noise == LogitNoise::Kind::kGumbel || p.noise == LogitNoise::Kind::kGaussian;
  };
  d.needs = [](const Parameters& p) {
    const bool scores = !released(p) && !whole_model(p);
    return Needs{.row_logits = scores, .kept_tokens_only = scores, .prompt_queries = true};
  };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (!whole_model(p)) return std::nullopt;
    if (p.budget.is_unsolved()) {
      return std::pair{
          "budget",
          "cannot be given as memory with scope: model, whose layers share one set and "
          "may differ in memory; give a number of tokens"};
    }
    if (released(p)) {
      return std::pair{"scope",
                       "model is not what the released code does: leave semantics at paper"};
    }
    if (p.positions == Positions::kCache) {
      return std::pair{"scope", "model attends at original positions: leave positions out"};
    }
    return std::nullopt;
  };
  d.replay_scope = [](const Parameters& p) {
    return whole_model(p) ? ReplayScope::kModel : ReplayScope::kHead;
  };
  d.model_work = [](const Parameters& p, std::uint32_t seed) { return SharedTrace{p, seed}; };
  d.skip_reason = reason_to_skip_keyformer;
  d.most_kept = most_kept;
  d.not_rows = [](const Parameters& p) { return not_rows(p.positions); };
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt,
                     std::uint32_t seed) {
    if (whole_model(p)) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{PromptScores(scoring(p, shape.tokens, prompt), seed)};
  };
  d.not_stored = [](const Parameters& p) { return not_stored(p.positions); };
  d.create = [](const Parameters& p, const CellContext& context) -> std::unique_ptr<Algorithm> {
    const Scoring rule = scoring(p, context.stream.shape.tokens, context.prompt);
    const RankedSubset kept = subset(p, context.prompt);
    if (whole_model(p)) {
      const ModelTrace& trace = context.shared.get(SharedTrace{p, context.seed});
      return std::make_unique<TraceFollower>(context, trace, 2, numbers(kept, rule));
    }
    if (released(p)) return std::make_unique<ReleasedKeyformer>(context, rule, kept);
    return std::make_unique<AccumulatedScores>(context, rule, kept);
  };
  return d;
}

}  // namespace kvbench::methods::keyformer
