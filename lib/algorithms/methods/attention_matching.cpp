// attention_matching: tokens of the prompt that reference queries (its own last ones) attend to.
// They are fitted once, so that they answer these queries as all tokens do: a weight each makes the
// softmax sums agree, and a value each makes the answers agree.
//
// Source: Attention Matching, released code adamzweiger/compaction 2e59cc8: AM-HighestAttnKeys
// (select rms) and AM-OMP (select omp) in their -basic forms. H2O+ of its tables is select mean,
// bias zero, values own, reference prompt, masked false.
//   reference queries -> References, beta -> ln of a row's weight, C2 -> fitted values,
//   keys chosen and re-solved by the fast pursuit -> keys_per_step, steps_per_solve (4 and 2)
// `select` may name another method of the registry: what it keeps of the prompt with its own
// defaults and this budget is fitted. `sinks` and `recent` are then that method's (`recent` the
// window of one that has a window), and are kept exactly; its own are fitted as the others are,
// which few references see: recent tokens are better kept exactly.
// Departures: references are the prompt's own queries, where the proper methods ask the model for
// others; they see no later token unless `masked` is false, which is what was released; both least
// squares have a ridge, where gels is used without one and needs full rank; the step of the
// projected gradient is the exact 1 / |M|_2^2, where three power steps from a random start estimate
// it; sinks and recent tokens take no part in the fit.
// Run next to that code, its float32 made float64, on nine KV heads of the shipped dump with
// budgets of 64 and 256 and `masked` false: rms, max and mean select the same tokens in 162 of 162
// cases; answers of the first decoded row agree to 2e-15 with own values, to 6e-13 with fitted ones
// (its Cholesky solver, ridge 1e-6, Frobenius), and with clamped weights (no steps, no ridge) to
// 2e-9. Rows are fitted in canonical arithmetic (kernels/least_squares.hpp): the same bits on every
// number of threads and instruction set.
#include <cmath>
#include <variant>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/matched_attention.hpp"
#include "algorithms/mechanisms/matching_pursuit.hpp"
#include "algorithms/mechanisms/selecting_method.hpp"

namespace kvbench::methods::attention_matching {
namespace {

enum class Own { kRms, kMax, kMean, kPursuit };
// Its own rule, or another method.
using Select = std::variant<Own, Describe>;
enum class Bias { kFitted, kZero };
enum class Values { kFitted, kOwn };
enum class From { kLast, kPrompt };

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 0;
  TokenCount recent = 0;
  Select select = Own::kRms;
  Bias bias = Bias::kFitted;
  Values values = Values::kFitted;
  From reference = From::kLast;
  Index rows = 256;
  bool masked = true;
  double ridge = 1e-6;
  Index steps = 2;
  std::optional<double> bias_low;  // none: by `select`
  std::optional<double> bias_high;
  double drop = -7.0;
  Index keys_per_step = 1;
  Index steps_per_solve = 1;
};

bool pursues(const Parameters& p) { return p.select == Select(Own::kPursuit); }

// The method that selects; none if it is one of its own rules.
std::optional<SelectingMethod> selection_of(const Parameters& p) {
  if (const Describe* describe = std::get_if<Describe>(&p.select)) {
    return SelectingMethod(*describe, p.budget, p.sinks, p.recent);
  }
  return std::nullopt;
}

double bias_low(const Parameters& p) {
  return p.bias_low.value_or(pursues(p) ? std::log(1e-12) : -3.0);
}
double bias_high(const Parameters& p) { return p.bias_high.value_or(pursues(p) ? 7.0 : 3.0); }

Index first_reference(const Parameters& p, Index prompt) {
  return p.reference == From::kPrompt ? 0 : std::max<Index>(0, prompt - p.rows);
}

References references_of(const Parameters& p, const StreamShape& shape, Index prompt) {
  const CompressedPrompt parts =
      compressed_prompt(shape, prompt, p.sinks.of(prompt), p.recent.of(prompt));
  return {first_reference(p, prompt), prompt, p.masked, parts.middle.first, parts.middle.last};
}

FitRule fit_rule(const Parameters& p) {
  return {.weights = p.bias == Bias::kFitted,
          .values = p.values == Values::kFitted,
          .ridge = p.ridge,
          .steps = p.steps,
          .lowest = std::exp(bias_low(p)),
          .highest = std::exp(bias_high(p))};
}

class AttentionMatching final : public CompressOnce {
 public:
  AttentionMatching(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt),
                     p.budget.of(context.prompt)),
        p_(p),
        references_(references_of(p, context.stream.shape, context.prompt)) {}

  Derived derived() const override {
    Derived out{{"sinks", prompt_.sinks},
                {"recent", prompt_.recent},
                {"middle", prompt_.middle.size()},
                {"fitted", fitted_},
                {"references", seeing_}};
    if (fitted_ > 0) {
      out.emplace_back("sum_residual", sum_residual_);
      out.emplace_back("output_residual", output_residual_);
    }
    return out;
  }

 protected:
  void compress_middle(PromptRange middle) override {
    // Sinks that left a sliding window take no part of the budget.
    const Index exact = prompt_.visible.size() - middle.size();
    const Index count = p_.budget.of(context_.prompt) - exact;
    if (count <= 0) return;
    const auto& attention =
        context_.shared.get(reference_attention(references_, context_.stream.shape));
    seeing_ = attention.seeing;
    std::vector<double> weights;
    std::vector<std::int32_t> tokens;
    if (const auto selection = selection_of(p_)) {
      for (const std::int32_t token : selection->tokens(context_)) {
        if (token >= middle.first && token < middle.last) tokens.push_back(token);
      }
    } else if (pursues(p_)) {
      PursuedTokens pursued =
          pursue(context_.shared.get(reference_exponentials(references_, context_.stream.shape)),
                 attention.sum, references_, count, pursuit_rule());
      tokens = std::move(pursued.tokens);
      weights = std::move(pursued.weights);
    } else {
      const Own rule = std::get<Own>(p_.select);
      const std::vector<double>& scores = rule == Own::kMax    ? attention.max
                                          : rule == Own::kMean ? attention.mean
                                                               : attention.rms;
      for (const Index token : best_tokens(scores, middle.first, count)) {
        tokens.push_back(static_cast<std::int32_t>(token));
      }
    }
    add_rows(tokens, fit_rows(context_.stream, references_, attention, tokens, fit_rule(p_),
                              std::move(weights)));
  }

 private:
  PursuitRule pursuit_rule() const {
    return {.ridge = p_.ridge,
            .lowest = std::exp(bias_low(p_)),
            .highest = std::exp(bias_high(p_)),
            .dropped = std::exp(p_.drop),
            .keys_per_step = p_.keys_per_step,
            .steps_per_solve = p_.steps_per_solve};
  }

  void add_rows(const std::vector<std::int32_t>& tokens, FittedRows fitted) {
    fitted_ = std::ssize(tokens);
    sum_residual_ = fitted.sum_residual;
    output_residual_ = fitted.output_residual;
    sketch_.own_values = std::move(fitted.values);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      SketchRow row = SketchRow::exact(tokens[i]);
      row.w_num = row.w_den = fitted.weights[i];
      row.weight_numbers = p_.bias == Bias::kFitted ? 1 : 0;
      if (!sketch_.own_values.empty()) row.own_value = static_cast<std::int32_t>(i);
      sketch_.add(row);
    }
  }

  Parameters p_;
  References references_;
  Index fitted_ = 0;
  Index seeing_ = 0;
  double sum_residual_ = 0.0;
  double output_residual_ = 0.0;
};

std::optional<std::string> cannot_match(const Parameters& p, const StreamShape& shape,
                                        Index prompt) {
  if (auto reason = cannot_compress(p.budget, p.sinks, p.recent.of(prompt), shape, prompt)) {
    return reason;
  }
  const Index first = first_reference(p, prompt);
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::nullopt;
  if (auto reason = lacks_prompt_queries(first, shape, prompt)) return reason;
  const auto selection = selection_of(p);
  if (!selection) return std::nullopt;
  return reason_to_skip(selection->algorithm, selection->params, shape, prompt);
}

std::vector<SharedWork> shared_work(const Parameters& p, const StreamShape& shape, Index prompt,
                                    std::uint32_t seed) {
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return {};
  const References references = references_of(p, shape, prompt);
  if (references.tokens() <= 0) return {};
  std::vector<SharedWork> work{reference_attention(references, shape)};
  if (pursues(p)) work.emplace_back(reference_exponentials(references, shape));
  if (const auto selection = selection_of(p)) {
    const auto more = selection->algorithm.shared_work(selection->params, shape, prompt, seed);
    work.insert(work.end(), more.begin(), more.end());
  }
  return work;
}

CellMemory memory_of(const Parameters& p, const StreamShape& shape, Index prompt) {
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return {};
  const References references = references_of(p, shape, prompt);
  const Index tokens = std::min(references.tokens(), p.budget.of(prompt));
  FitRule rule = fit_rule(p);
  rule.weights = rule.weights && !pursues(p);  // a pursuit finds them
  const double fit = fit_bytes(references.rows() * shape.heads_per_kv, tokens, shape, rule);
  const double pursuit = pursues(p) ? pursuit_bytes(references.tokens(), tokens) : 0.0;
  return {.working = std::max(fit, pursuit)};
}

Choices<Select> selections() {
  Choices<Select> all = {
      {"rms", Own::kRms}, {"max", Own::kMax}, {"mean", Own::kMean}, {"omp", Own::kPursuit}};
  for (const auto& [id, describe] : selecting_methods()) all.emplace_back(id, describe);
  return all;
}

ParameterTable<Parameters> parameter_table() {
  using P = Parameters;
  return {
      budget_field(&P::budget).required(),
      sinks_field(&P::sinks),
      recent_field(&P::recent, "last tokens of the prompt; always kept"),
      field("select", &P::select, selections(),
            "which tokens are fitted: those of largest root mean square, maximum or mean of the "
            "references' attention, by orthogonal matching pursuit of their softmax sums, or "
            "those that another method keeps, with its defaults and this budget"),
      field("bias", &P::bias, {{"nnls", Bias::kFitted}, {"zero", Bias::kZero}},
            "nnls: weights fitted to the softmax sums, their logarithms are the biases; zero: "
            "weights 1"),
      field("values", &P::values, {{"lsq", Values::kFitted}, {"own", Values::kOwn}},
            "lsq: values fitted to the answers by least squares; own: the tokens'"),
      field("reference", &P::reference, {{"last", From::kLast}, {"prompt", From::kPrompt}},
            "reference queries: those of the last `rows` rows of the prompt, or of all its rows"),
      field("rows", &P::rows, "rows of reference last; all query heads of each")
          .at_least(1)
          .at_most(1e9),
      field("masked", &P::masked, "a reference sees no token after its own"),
      field("ridge", &P::ridge,
            "ridge of both least-squares fits, times the squared Frobenius norm over the tokens"),
      field("steps", &P::steps, "projected gradient steps of the weights; not with select omp")
          .at_most(1e6),
      field("bias_low", &P::bias_low, "least bias; auto: -3, ln 1e-12 with select omp")
          .at_least(-700)
          .at_most(700)
          .or_word("auto"),
      field("bias_high", &P::bias_high, "largest bias; auto: 3, 7 with select omp")
          .at_least(-700)
          .at_most(700)
          .or_word("auto"),
      field("drop", &P::drop, "select omp drops tokens of a smaller bias for others")
          .at_least(-700)
          .at_most(700),
      field("keys_per_step", &P::keys_per_step, "tokens that a step of select omp takes")
          .at_least(1)
          .at_most(1e9),
      field("steps_per_solve", &P::steps_per_solve,
            "steps of select omp between two fits of the weights")
          .at_least(1)
          .at_most(1e9)};
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "attention_matching";
  d.title = "tokens with weights and values fitted to reference queries";
  d.source = "Attention Matching, released code";
  d.derived = {
      sinks_key(),
      recent_key(),
      middle_key(),
      {"fitted", "tokens of the middle that are kept, fitted"},
      {"references", "reference queries that see any token of the middle"},
      {"sum_residual",
       "relative 2-norm, over the references, of the residual of the fitted softmax sums"},
      {"output_residual",
       "relative Frobenius norm, over the references, of the residual of the fitted answers"}};
  d.parameters = parameter_table();
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (bias_low(p) > bias_high(p)) return std::pair{"bias_low", "must not be above bias_high"};
    const auto selection = selection_of(p);
    if (!selection || (selection->takes_sinks && selection->takes_recent)) return std::nullopt;
    return std::pair{selection->takes_sinks ? "recent" : "sinks",
                     "does not go with select: " + selection->algorithm.id +
                         ", which has no such number of tokens; leave it out"};
  };
  d.needs = [](const Parameters& p) {
    const auto selection = selection_of(p);
    return selection ? selection->algorithm.needs(selection->params) : Needs{};
  };
  d.skip_reason = cannot_match;
  d.shared_work = shared_work;
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const Index budget = p.budget.of(prompt);
    const Index exact = p.sinks.of(prompt) + p.recent.of(prompt);
    return most_kept_once(budget, p.bias == Bias::kFitted ? budget - exact : 0, shape, prompt);
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.weighs = [](const Parameters& p) { return p.bias == Bias::kFitted; };
  d.makes_values = [](const Parameters& p) { return p.values == Values::kFitted; };
  d.memory = memory_of;
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<AttentionMatching>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::attention_matching
