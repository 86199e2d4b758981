// capkv: tokens by what their values add to the capacity of what is kept, weighted by how well
// their keys agree with the mean of later queries.
//
// Source: CAPKV (arXiv 2604.25975) by kvpress 8bb29b9, cap_press.py.
//   mu_q -> anchor (mean of ExpectedQueries, unit length), tau -> tau, n_future_positions ->
//   future, n_sink -> sinks, epsilon -> kEpsilon, A = I + sum_j (w_j + epsilon) v_j v_j^T
// Departures: none of kvpress, which solves with A in float32. Its departures from the paper are
// kept: keys and anchor of unit length, weights relative to the largest, the averaged rotation.
// Compared on the shipped dump in double precision: kvpress 0.5.5 (CapPress, solving in double
// precision; by `tests/peers/run.sh`) keeps the same tokens, errors per row equal to 9 digits
// at least.
#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/expected_queries.hpp"
#include "algorithms/mechanisms/token_ranking.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench::methods::capkv {
namespace {

constexpr double kEpsilon = 1e-6;
constexpr double kUnitFloor = 1e-12;  // least of the norms that are divided by

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 4;
  Index future = 512;
  double tau = 5.0;
};

double norm(const double* x, Index d) {
  return std::max(std::sqrt(canonical_dot(x, x, d)), kUnitFloor);
}

// exp(tau cosine), relative to the largest.
std::vector<double> relevance(const Stream& stream, PromptRange tokens,
                              const std::vector<double>& anchor, double tau) {
  const Index d = stream.shape.d;
  const double anchor_norm = norm(anchor.data(), d);
  std::vector<double> logits;
  for (Index token = tokens.first; token < tokens.last; ++token) {
    const double* key = stream.keys.row(token);
    const double cosine = canonical_dot(anchor.data(), key, d) / (anchor_norm * norm(key, d));
    logits.push_back(tau * std::clamp(cosine, -1.0, 1.0));
  }
  const double most = *std::max_element(logits.begin(), logits.end());
  for (double& x : logits) x = canonical_exp(x - most);
  return logits;
}

// v^T A^-1 v of the tokens' values, A = I + sum_j weight_j v_j v_j^T.
std::vector<double> leverages(ConstMatrix values, PromptRange tokens,
                              const std::vector<double>& weights) {
  const Index dv = values.cols;
  std::vector<double> weighted(tokens.size() * dv);
  for (Index j = 0; j < tokens.size(); ++j) {
    const double* value = values.row(tokens.first + j);
    for (Index k = 0; k < dv; ++k) {
      weighted[j * dv + k] = weights[j] * value[k];
    }
  }
  std::vector<double> a(dv * dv, 0.0);
  for (Index k = 0; k < dv; ++k) a[k * dv + k] = 1.0;
  const ConstMatrix all(values.row(tokens.first), tokens.size(), dv, values.stride);
  add_product({weighted.data(), tokens.size(), dv}, all, {a.data(), dv, dv});
  const std::optional<Cholesky> factor = Cholesky::of({a.data(), dv, dv}, 0.0);
  if (!factor) throw CellError("sums of squared values overflow");
  return quadratic_forms(*factor, all);
}

// Shared work: scores of the tokens behind the sinks, the mean over query heads.
struct CapacityScores {
  Index sinks = 0;
  Index future = 0;
  double tau = 0.0;

  using Result = std::vector<double>;
  Result compute(const SharedContext& context) const {
    const Stream& stream = context.stream;
    const PromptRange tokens = compressed_prompt(stream.shape, context.prompt, sinks, 0).middle;
    const ExpectedQueries queries = expected_queries(stream, tokens, context.prompt, future, false);
    Result total(tokens.size(), 0.0);
    for (const std::vector<double>& anchor : queries.mean) {
      const std::vector<double> weights = relevance(stream, tokens, anchor, tau);
      std::vector<double> floored = weights;
      for (double& weight : floored) weight += kEpsilon;
      const std::vector<double> added = leverages(stream.values, tokens, floored);
      for (std::size_t j = 0; j < total.size(); ++j) total[j] += weights[j] * added[j];
    }
    for (double& x : total) x /= stream.shape.heads_per_kv;
    return total;
  }
  auto operator<=>(const CapacityScores&) const = default;
};

CapacityScores work_of(const Parameters& p, Index prompt) {
  return {p.sinks.of(prompt), p.future, p.tau};
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "capkv";
  d.title = "tokens whose values add most capacity, by agreement with later queries";
  d.source = "CAPKV (arXiv 2604.25975)";
  d.derived = RankedPrompt::derived_keys();
  using P = Parameters;
  d.limits.alibi = "capkv expects logits by inner products alone";
  d.limits.all_tokens = "capkv expects the queries of rows after the prompt";
  d.parameters = {
      budget_field(&P::budget).required(), sinks_field(&P::sinks), future_field(&P::future),
      field("tau", &P::tau, "sharpness of the weights exp(tau cosine); 0: values alone decide")
          .at_most(300)};
  d.skip_reason = [](const P& p, const StreamShape& shape, Index prompt) {
    return cannot_expect(p.budget, p.sinks, shape, prompt);
  };
  d.shared_work = [](const P& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{work_of(p, prompt)};
  };
  d.most_kept = [](const P& p, const StreamShape& shape, Index prompt) {
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.ranks = [](const P& p, const StreamShape&, Index prompt) {
    return BudgetParts{p.budget.of(prompt), p.sinks.of(prompt), 0};
  };
  d.only_appends = [](const P&) { return true; };
  d.create = [](const P& p, const CellContext& context) {
    const BudgetParts parts{p.budget.of(context.prompt), p.sinks.of(context.prompt), 0};
    return std::make_unique<RankedPrompt>(context, parts, [p, context](PromptRange) {
      return context.shared.get(work_of(p, context.prompt));
    });
  };
  return d;
}

}  // namespace kvbench::methods::capkv
