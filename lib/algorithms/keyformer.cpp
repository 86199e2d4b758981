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
#include "algorithms/accumulated_scores.hpp"
#include "algorithms/budget.hpp"
#include "algorithms/model_scope.hpp"
#include "algorithms/positions.hpp"

namespace kvbench {
namespace {

Scoring scoring(const Params& params, Index tokens, Index prompt) {
  Scoring out;
  const std::string& noise = params.word("noise");
  out.noise = noise == "gumbel"     ? LogitNoise::Kind::kGumbel
              : noise == "gaussian" ? LogitNoise::Kind::kGaussian
              : noise == "constant" ? LogitNoise::Kind::kConstant
                                    : LogitNoise::Kind::kNone;
  out.fresh_noise = params.word("draw") == "row";
  out.tau_init = params.real("tau_init");
  out.gen_len = params.is_word("gen_len") ? tokens - prompt : params.integer("gen_len");
  out.tau_step = (params.real("tau_end") - out.tau_init) / static_cast<double>(out.gen_len);
  const double alpha = params.real("damping");
  (params.word("damping_form") == "new" ? out.gain : out.decay) = alpha;
  out.numbers_per_head = 2;  // score and noise
  return out;
}

// Frozen keys and a sliding window; scores matter in the prompt alone.
class ReleasedKeyformer final : public Algorithm {
 public:
  ReleasedKeyformer(const Setting& setting, const Scoring& scoring, Index recent)
      : setting_(setting), scoring_(scoring), recent_(recent) {
    sketch_.cache_positions = at_cache_positions(setting.params);
  }

  void finish_prompt() override {
    const Index budget = setting_.params.tokens("budget", setting_.prompt);
    const PromptRange prompt = visible_prompt(setting_.stream.shape, setting_.prompt);
    if (prompt.size() == 0) return;
    const auto& sums =
        setting_.shared.get<PromptScores>(prompt_scores(scoring_, setting_.seed).key);
    keys_ = best_of_prompt(setting_, sums, recent_, budget - recent_);
  }

  void extend(Index, Index last) override {
    if (last <= setting_.prompt) return;
    const Index row = last - 1;
    const Index lo = setting_.stream.shape.first_visible(row);
    const Index window = std::max(lo, last - recent_);
    sketch_.clear();
    for (const Index token : keys_) {
      if (token >= lo && token < window) sketch_.add(SketchRow::exact(token));
    }
    sketch_.add_exact(window, last);
    sketch_.bookkeeping = sketch_.size() * setting_.stream.shape.group * scoring_.numbers_per_head;
  }

  Derived derived() const override {
    const Index budget = setting_.params.tokens("budget", setting_.prompt);
    return {{"budget", budget}, {"recent", recent_}, {"gen_len", scoring_.gen_len}};
  }

 private:
  const Setting setting_;
  Scoring scoring_;
  Index recent_;
  std::vector<Index> keys_;  // ascending
};

bool whole_model(const Params& params) { return params.word("scope") == "model"; }

std::string trace_key(const Params& params, std::uint32_t seed) {
  std::string key = "keyformer trace, seed " + std::to_string(seed);
  for (const auto& [name, value] : params.entries()) key += ", " + name + " " + to_string(value);
  return key;
}

ModelWork shared_trace(const Params& params, std::uint32_t seed) {
  return {trace_key(params, seed),
          [params, seed](const ModelSetting& setting) {
            return std::any(trace_model(setting, scoring(params, setting.tokens, setting.prompt),
                                        params.tokens("budget", setting.prompt),
                                        recent_window(params, setting.prompt), seed));
          },
          [params](Index heads, Index prompt, Index tokens) {
            return trace_bytes(heads, tokens - prompt, params.tokens("budget", prompt));
          }};
}

Parameter real(const char* name, double fallback, double minimum, bool open, const char* doc) {
  Parameter p;
  p.name = name;
  p.kind = Parameter::Kind::kReal;
  p.minimum = minimum;
  p.minimum_open = open;
  p.fallback = Value{fallback};
  p.doc = doc;
  return p;
}

}  // namespace

AlgorithmDescription describe_keyformer() {
  AlgorithmDescription d;
  d.id = "keyformer";
  d.title = "tokens of largest accumulated noisy attention, and recent ones";
  d.source = "Keyformer Algorithm 1 and its ablations";
  Parameter gen_len;
  gen_len.name = "gen_len";
  gen_len.minimum = 1;
  gen_len.words = {"auto"};
  gen_len.fallback = Value{std::string("auto")};
  gen_len.doc = "decode rows over which tau goes from tau_init to tau_end; auto: n - P";
  d.parameters = {
      budget_parameter(),
      recent_fraction_parameter(0.3),
      real("tau_init", 1.0, 0.0, true, "temperature in the prompt"),
      real("tau_end", 2.0, 0.0, true, "temperature after gen_len decode rows"),
      gen_len,
      choice_parameter("noise", {"gumbel", "gaussian", "constant", "none"}, "added to the logits"),
      choice_parameter("draw", {"token", "row"}, "noise once per token, or afresh for every row"),
      real("damping", 1.0, 0.0, false, "alpha"),
      choice_parameter("damping_form", {"new", "old"}, "new: f += alpha s; old: f = alpha f + s"),
      choice_parameter("scope", {"layer", "model"},
                       "layer: scores per KV head's stream; model: one score and one kept set over "
                       "all selected layers and heads"),
      positions_parameter(),
      group_parameter(),
      choice_parameter("semantics", {"paper", "released"},
                       "released: the key set is frozen after the prompt")};
  d.randomised = [](const Params& params) {
    return params.word("noise") == "gumbel" || params.word("noise") == "gaussian";
  };
  d.needs = [](const Params& params) {
    const bool scores = params.word("semantics") == "paper" && !whole_model(params);
    return Needs{.row_logits = scores, .held_only = scores, .prompt_queries = true};
  };
  d.fault = [](const Params& params) -> std::optional<std::pair<std::string, std::string>> {
    if (!whole_model(params)) return std::nullopt;
    if (params.word("semantics") == "released") {
      return std::pair{std::string("scope"),
                       std::string("model is not what the released code does: "
                                   "leave semantics at paper")};
    }
    if (at_cache_positions(params)) {
      return std::pair{std::string("scope"),
                       std::string("model attends at original positions: leave positions out")};
    }
    return std::nullopt;
  };
  d.unit = [](const Params& params) {
    return whole_model(params) ? ReplayUnit::kModel : ReplayUnit::kHead;
  };
  d.model_work = shared_trace;
  d.skip_reason = [](const Params& params, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(params, prompt)) return reason;
    if (params.word("semantics") == "released" && recent_window(params, prompt) == 0) {
      return "semantics: released attends to the new token as part of the recent window, and "
             "recent_fraction leaves 0 tokens";
    }
    if (whole_model(params) && shape.slides()) {
      return "scope: model keeps one set in all layers, and a layer of the scope has a sliding "
             "window";
    }
    const Scoring rule = scoring(params, shape.tokens, prompt);
    const double last_tau =
        rule.tau_init + static_cast<double>(shape.tokens - prompt) * rule.tau_step;
    if (!(last_tau > 0.0)) {
      return "tau falls from tau_init by the same step at every decode row, and is no longer "
             "positive at the last one: gen_len is too short";
    }
    return no_rope(params, shape);
  };
  d.shared_work = [](const Params& params, const StreamShape& shape, Index prompt,
                     std::uint32_t seed) {
    if (whole_model(params)) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{prompt_scores(scoring(params, shape.tokens, prompt), seed)};
  };
  d.create = [](const Setting& setting) -> std::unique_ptr<Algorithm> {
    if (whole_model(setting.params)) {
      return std::make_unique<TraceFollower>(
          setting, setting.shared.get<ModelTrace>(trace_key(setting.params, setting.seed)), 2);
    }
    const Scoring rule = scoring(setting.params, setting.stream.shape.tokens, setting.prompt);
    const Index recent = recent_window(setting.params, setting.prompt);
    if (setting.params.word("semantics") == "released") {
      return std::make_unique<ReleasedKeyformer>(setting, rule, recent);
    }
    return std::make_unique<AccumulatedScores>(setting, rule, recent);
  };
  return d;
}

}  // namespace kvbench
