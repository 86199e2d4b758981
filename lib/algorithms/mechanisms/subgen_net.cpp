#include "algorithms/mechanisms/subgen_net.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/distance_quantile.hpp"
#include "numerics/canonical.hpp"

namespace kvbench {
namespace {

double slot_weight(const Stream& stream, SlotSampling sampling, Index token) {
  if (sampling == SlotSampling::kUniform) return 1.0;
  if (sampling == SlotSampling::kK2) {
    const double* k = stream.keys.row(token);
    return canonical_dot(k, k, stream.shape.d);
  }
  const double* v = stream.values.row(token);
  const double squared = canonical_dot(v, v, stream.shape.dv);
  return sampling == SlotSampling::kV1 ? std::sqrt(squared) : squared;
}

SlotWeights slot_weights(const Stream& stream, SlotSampling sampling, Index first) {
  SlotWeights out;
  double mu = 0.0;
  for (Index j = first; j < stream.shape.tokens; ++j) {
    out.weight.push_back(slot_weight(stream, sampling, j));
    mu += out.weight.back();
    out.cumulative.push_back(mu);
  }
  return out;
}

// ||v||^2 / w, by token; none if nothing is drawn.
std::vector<double> squared_norms_per_weight(const Stream& stream, const SlotWeights& weights,
                                             Index first) {
  std::vector<double> share(stream.shape.tokens, 0.0);
  for (Index j = first; j < stream.shape.tokens; ++j) {
    const double w = weights.weight[j - first];
    const double* v = stream.values.row(j);
    if (w > 0.0) share[j] = canonical_dot(v, v, stream.shape.dv) / w;
  }
  return share;
}

double largest_query_norm(const SharedContext& context) {
  const Stream& stream = context.stream;
  double largest = 0.0;
  for (const Index row : scored_rows(context)) {
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      const double* q = stream.query(g, row);
      largest = std::max(largest, canonical_dot(q, q, stream.shape.d));
    }
  }
  return std::abs(stream.shape.scale) * std::sqrt(largest);
}

}  // namespace

SubGenNet::Result SubGenNet::compute(const SharedContext& context) const {
  const Stream& stream = context.stream;
  const double radius = delta ? *delta : distance_quantile(stream.keys, delta_quantile.value());
  const Index first = std::min(sinks, stream.shape.tokens);
  Result net;
  net.clustering = context.kernels.cluster(stream.keys, first, radius);
  return net;
}

void SubGenNet::add_rows(const SharedContext& context, const RowBlock& block, Result& net) const {
  add_normalizer_variances(context, block, net.clustering, recent, net.normalizer_variance);
}

SubGenStream::Result SubGenStream::compute(const SharedContext& context) const {
  const Stream& stream = context.stream;
  const Index first = std::min(sinks, stream.shape.tokens);
  Result out;
  out.weights = slot_weights(stream, sampling, first);
  std::vector<double> spectral;
  std::vector<double> frobenius;
  context.kernels.value_norms(stream, {stream.shape.tokens - 1}, spectral, frobenius);
  const double ratio = spectral[0] > 0.0 ? frobenius[0] / spectral[0] : 0.0;
  out.srank = ratio * ratio;
  out.q_norm_bound = largest_query_norm(context);
  out.share = squared_norms_per_weight(stream, out.weights, first);
  if (context.value_spectral == nullptr) {
    context.kernels.value_norms(stream, scored_rows(context), out.value_spectral, frobenius);
  }
  return out;
}

void SubGenStream::add_rows(const SharedContext& context, const RowBlock& block,
                            Result& out) const {
  const SlotTokens tokens = {std::min(sinks, context.stream.shape.tokens), recent,
                             out.weights.cumulative, out.share};
  add_numerator_variances(
      context, block, tokens,
      context.value_spectral != nullptr ? *context.value_spectral : out.value_spectral,
      out.numerator_variance);
}

double SubGenTheorem::slots(double epsilon, double cap) const {
  return std::clamp(std::ceil(1800.0 * srank / (epsilon * epsilon)), 1.0, cap);
}

// ln of the smaller of the Chebyshev and the Chernoff form.
double SubGenTheorem::log_samples_times_epsilon_squared() const {
  // (rho - 1)^2 / rho = rho (1 - 1/rho)^2.
  const double chebyshev = std::log(450.0) + log_rho + 2.0 * std::log(-std::expm1(-log_rho));
  const double chernoff = std::log(27.0 * std::log(400.0 * std::max(1.0, clusters))) + log_rho;
  return std::min(chebyshev, chernoff);
}

double SubGenTheorem::samples(double epsilon, double cap) const {
  const double log_t = log_samples_times_epsilon_squared() - 2.0 * std::log(epsilon);
  if (log_t >= std::log(cap)) return cap;
  return std::clamp(std::ceil(std::exp(log_t)), 1.0, cap);
}

double SubGenTheorem::epsilon(double t, double s) const {
  const double by_slots = std::sqrt(1800.0 * srank / s);
  const double by_samples = std::exp(0.5 * (log_samples_times_epsilon_squared() - std::log(t)));
  return std::max(by_slots, by_samples);
}

}  // namespace kvbench
