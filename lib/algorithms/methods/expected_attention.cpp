// expected_attention: tokens by the attention that later queries would pay them, times the size of
// their values. Later queries are taken to be normally distributed, with the mean and covariance of
// the prompt's, or of other texts'.
//
// Source: Expected Attention (Devoto et al., arXiv 2510.00636) by kvpress 8bb29b9,
// expected_attention_press.py.
//   mu, Sigma -> ExpectedQueries, n_future_positions -> future, n_sink -> sinks, epsilon ->
//   epsilon, use_covariance -> covariance, use_vnorm -> value_norm
// Departures: logits have the model's scale (kvpress: 1 / sqrt(d)), and no soft-cap. On a sliding
// layer the visible part of the prompt is all there is, its queries included. A calibration file
// (arrays `mean` and `covariance`, before rotation) has the part of
// expected_attention_with_stats.py; the statistics that kvpress publishes are not read. Compared on
// the shipped dump in double precision: kvpress 0.5.5 (ExpectedAttentionPress; by
// `tests/peers/run.sh`) keeps the same tokens, errors per row equal to 9 digits at least.
#include <cmath>

#include "algorithms/mechanisms/expected_queries.hpp"
#include "algorithms/mechanisms/token_ranking.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::expected_attention {
namespace {

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 4;
  Index future = 512;
  bool covariance = true;
  bool value_norm = true;
  double epsilon = 0.0;
  OptionalCalibration calibration;
};

ExpectedAttention work_of(const Parameters& p, Index prompt) {
  return {p.sinks.of(prompt), p.future, p.covariance, p.calibration};
}

std::unique_ptr<Algorithm> create(const Parameters& p, const CellContext& context) {
  const BudgetParts parts{p.budget.of(context.prompt), p.sinks.of(context.prompt), 0};
  return std::make_unique<RankedPrompt>(context, parts, [p, context](PromptRange middle) {
    std::vector<double> scores = context.shared.get(work_of(p, context.prompt));
    if (!p.value_norm) return scores;
    const ConstMatrix values = context.stream.values;
    for (Index j = 0; j < middle.size(); ++j) {
      const double* value = values.row(middle.first + j);
      double& score = scores[j];
      score = (score + p.epsilon) * std::sqrt(canonical_dot(value, value, values.cols));
    }
    return scores;
  });
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "expected_attention";
  d.title = "tokens that queries like the prompt's are expected to attend to";
  d.source = "Expected Attention (Devoto et al.)";
  d.derived = RankedPrompt::derived_keys();
  using P = Parameters;
  d.limits.alibi = "expected_attention expects logits by inner products alone";
  d.limits.all_tokens = "expected_attention expects the queries of rows after the prompt";
  d.parameters = {
      budget_field(&P::budget).required(),
      sinks_field(&P::sinks),
      future_field(&P::future),
      field("covariance", &P::covariance,
            "true: queries have the prompt's covariance; false: all are the mean query"),
      field("value_norm", &P::value_norm, "scores are multiplied by the norms of values"),
      field("epsilon", &P::epsilon, "added to the expected attention if value_norm is on"),
      calibration_field(&P::calibration)};
  d.calibration_params = {"sinks"};
  d.skip_reason = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    if (!p.calibration) return cannot_expect(p.budget, p.sinks, shape, prompt);
    if (shape.rope == nullptr) return lacks_expected_queries(p.sinks.of(prompt), shape, prompt);
    return cannot_compress(p.budget, p.sinks, 0, shape, prompt);
  };
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{work_of(p, prompt)};
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.ranks = [](const Parameters& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), p.sinks.of(prompt), 0};
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.calibrate = [](const Parameters& p, const CalibrationTexts& texts) {
    return calibrated_queries(p.sinks, texts);
  };
  d.create = create;
  return d;
}

}  // namespace kvbench::methods::expected_attention
