// h2o: heavy hitters by accumulated attention, and a window of recent tokens.
//
// Source: H2O (Zhang et al.), the baseline of SubGen and Keyformer; `semantics: paper` is
// Keyformer's Algorithm 1 without noise, `semantics: released` the masks of H2O's published code.
//   k -> budget, w = floor(k recent_fraction), f_theta -> scores per query head
// Departures: the new token is answered over k + 1 tokens before one is evicted (a paper's "m = k"
// is read so); scores are kept per query head and combined per KV head when tokens are ranked.
// Noted, not done: attending to k tokens, age-normalised scores, evicting every m-th row only.
// Compared on the shipped dump in double precision, errors per row equal to 11 digits, once,
// through 256 decoded tokens and with one query head per KV head: H2O ac75c2a, of which
// utils_real_drop keeps what `paper` keeps (4 settings of 9 heads) and answers as it does at both
// kinds of positions (2 settings each), and utils_hh attends to what `released` does (3). At the
// first decoded token: KVCache-Factory c97f9d7 (H2OKVCluster), which evicts no more after it.
// kvpress 0.5.5 (ObservedAttentionPress; by `tests/peers/run.sh`) divides a token's sum by the
// rows that see it, keeps no recent window and evicts once; without that division it ranks as this
// does.
#include "algorithms/mechanisms/accumulated_scores.hpp"
#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/released_h2o.hpp"

namespace kvbench::methods::h2o {
namespace {

enum class Semantics { kPaper, kReleased };

struct Parameters {
  TokenCount budget;
  double recent_fraction = 0.5;
  GroupRule group = GroupRule::kMean;
  Semantics semantics = Semantics::kPaper;
  Positions positions = Positions::kOriginal;
};

bool released(const Parameters& p) { return p.semantics == Semantics::kReleased; }

RankedSubset subset(const Parameters& p, Index prompt) {
  const Index budget = p.budget.of(prompt);
  return {budget, recent_window(budget, p.recent_fraction), p.group, p.positions};
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "h2o";
  d.title = "tokens of largest accumulated attention, and recent ones";
  d.source = "H2O (Zhang et al.)";
  d.derived = ranked_subset_keys();
  d.limits.all_tokens = "h2o drops tokens from row to row";
  d.parameters = {budget_field(&Parameters::budget).required(),
                  recent_fraction_field(&Parameters::recent_fraction),
                  group_field(&Parameters::group),
                  field("semantics", &Parameters::semantics,
                        {{"paper", Semantics::kPaper}, {"released", Semantics::kReleased}},
                        "paper: evicted tokens never return; released: masked tokens may, as in "
                        "the published code"),
                  positions_field(&Parameters::positions)};
  // As released, masked tokens may return to the sketch.
  d.needs = [](const Parameters& p) {
    return Needs{.row_logits = true, .kept_tokens_only = !released(p), .prompt_queries = true};
  };
  d.never_evicts = released;
  d.not_rows = [](const Parameters& p) { return not_rows(p.positions); };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (!released(p) || !p.budget.is_unsolved()) return std::nullopt;
    return std::pair{"budget",
                     "cannot be given as memory with semantics: released, which keeps every token; "
                     "give a number of tokens"};
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return std::optional(most_kept_by_score(p.budget, 1, shape, prompt));
  };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(p.budget, prompt)) return reason;
    if (released(p) && subset(p, prompt).recent == 0) {
      return "semantics: released has no meaning without a recent window (the published code then "
             "masks nothing), and recent_fraction leaves 0 tokens";
    }
    return no_rope(p.positions, shape);
  };
  d.shared_work = [](const Parameters&, const StreamShape&, Index, std::uint32_t seed) {
    return std::vector<SharedWork>{PromptScores(Scoring{}, seed)};
  };
  d.not_stored = [](const Parameters& p) { return not_stored(p.positions); };
  d.create = [](const Parameters& p, const CellContext& context) -> std::unique_ptr<Algorithm> {
    const RankedSubset kept = subset(p, context.prompt);
    if (released(p)) return std::make_unique<ReleasedH2o>(context, kept);
    return std::make_unique<AccumulatedScores>(context, Scoring{}, kept);
  };
  return d;
}

}  // namespace kvbench::methods::h2o
