// knorm: the tokens of smallest key norm, by themselves or with sinks and recent tokens. No query
// is looked at.
//
// Source: L2 norm (Devoto et al., arXiv 2406.11430); kvpress 8bb29b9, knorm_press.py; the streaming
// form is KNormCache of Q-Filters, cda5c38.
//   ||k_j|| -> compared as canonical ||k_j||^2; `metric: value` keeps large values, an ablation
// Rotation keeps norms, so that keys before and after RoPE rank alike.
// Departures: none of kvpress; the paper spares the first two layers, which a sweep does by
// selecting layers. With static scores the streaming form may cut the prompt at once.
// Compared on the shipped dump in double precision: kvpress 0.5.5 (KnormPress; by
// tests/peers) keeps the same tokens, errors per row equal to 9 digits at least.
#include <cmath>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::knorm {
namespace {

enum class Metric { kKey, kValue };
struct Parameters : TimedRankingParameters {
  Metric metric = Metric::kKey;
};

double norm(ConstMatrix rows, Index token) {
  return std::sqrt(canonical_dot(rows.row(token), rows.row(token), rows.cols));
}

std::unique_ptr<Algorithm> create(const Parameters& p, const CellContext& context) {
  const auto score = [by_value = p.metric == Metric::kValue,
                      &stream = context.stream](Index token) {
    return by_value ? norm(stream.values, token) : -norm(stream.keys, token);
  };
  return ranked(p, context, score);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "knorm";
  d.title = "tokens of smallest key norm";
  d.source = "L2 norm (Devoto et al.)";
  d.derived = RankedPrompt::derived_keys();
  d.parameters.add(ranking_fields());
  d.parameters.add(
      {field("metric", &Parameters::metric, {{"key", Metric::kKey}, {"value", Metric::kValue}},
             "key: small key norms stay; value: large value norms"),
       ranking_time_field()});
  d.skip_reason = cannot_rank_in_time;
  d.most_kept = most_kept_ranked;
  d.ranks = ranked_parts;
  d.only_appends = [](const Parameters& p) { return !p.streams(); };
  d.create = create;
  return d;
}

}  // namespace kvbench::methods::knorm
