#include "algorithms/subgen_net.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/canonical.hpp"
#include "core/lanes.hpp"
#include "kernels/distance_quantile.hpp"

namespace kvbench {
namespace {

constexpr Index kLogitBytes = Index{16} << 20;  // logits and exponentials in memory at one time

std::vector<Index> rows_of(const SharedContext& context) {
  if (context.scored_rows != nullptr) return *context.scored_rows;
  const StreamShape& shape = context.stream.shape;
  std::vector<Index> rows(static_cast<std::size_t>(shape.tokens - shape.first_query));
  std::iota(rows.begin(), rows.end(), shape.first_query);
  return rows;
}

// One query head at scored row number r: e = exp(x - max) over the tokens that row `row` sees.
struct Query {
  std::size_t r = 0;
  Index row = 0;
  const double* e = nullptr;
  double sink = 0.0;  // the exponential of the query head's sink
};

// Calls visit(query) for all rows and query heads in order.
template <class Visit>
void for_each_query(const SharedContext& context, const std::vector<Index>& rows,
                    const Visit& visit) {
  const StreamShape& shape = context.stream.shape;
  const auto visit_block = [&](const LogitBlock& block, Index first) {
    for (Index query_index = 0; query_index < static_cast<Index>(block.max_logit.size());
         ++query_index) {
      const auto r = static_cast<std::size_t>(first + query_index / shape.heads_per_kv);
      const double sink =
          canonical_exp(context.stream.sink(static_cast<int>(query_index % shape.heads_per_kv)) -
                        block.max_logit[static_cast<std::size_t>(query_index)]);
      visit(Query{r, rows[r], block.exps.data() + query_index * block.tokens, sink});
    }
  };
  if (context.scored_logits != nullptr) {
    visit_block(context.scored_logits->logits(), 0);
    return;
  }
  LogitBlock block;
  const Index count = static_cast<Index>(rows.size());
  const Index row_bytes = 16 * shape.heads_per_kv * shape.tokens;
  const Index at_once = std::max<Index>(1, kLogitBytes / std::max<Index>(1, row_bytes));
  for (Index first = 0; first < count; first += at_once) {
    const Index last = std::min(first + at_once, count);
    context.kernels.logits(context.stream, {rows.begin() + first, rows.begin() + last}, block);
    visit_block(block, first);
  }
}

// sum over [0, last) of e and of e^2.
struct Sums {
  double e = 0.0;
  double squares = 0.0;
};

Sums sums_of(const double* e, Index last) {
  Lanes sum = Lanes::all(0.0);
  Lanes squares = Lanes::all(0.0);
  Index j = 0;
  for (; j + Lanes::kCount <= last; j += Lanes::kCount) {
    const Lanes x = Lanes::load(e + j);
    sum = sum + x;
    squares = Lanes::fma(x, x, squares);
  }
  Sums out{sum.sum(), squares.sum()};
  for (; j < last; ++j) {
    out.e += e[j];
    out.squares += e[j] * e[j];
  }
  return out;
}

// sum over [first, last) of e^2 weight.
double weighted_squares(const double* e, const double* weight, Index first, Index last) {
  Lanes sum = Lanes::all(0.0);
  Index j = first;
  for (; j + Lanes::kCount <= last; j += Lanes::kCount) {
    const Lanes x = Lanes::load(e + j);
    sum = Lanes::fma(x * x, Lanes::load(weight + j), sum);
  }
  double total = sum.sum();
  for (; j < last; ++j) total += e[j] * e[j] * weight[j];
  return total;
}

// Tokens [first, entered) are in the state at a row: sinks and recent ones are not.
Index entered_at(Index row, Index recent) { return row + 1 - recent; }

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

double mean_normalizer_variance(const SharedContext& context, const Clustering& clustering,
                                Index recent) {
  struct Cluster {
    double sum = 0.0;
    double squares = 0.0;
  };
  const std::vector<Index> rows = rows_of(context);
  std::vector<Cluster> clusters(clustering.opened_by.size());
  std::vector<double> count(clusters.size(), 0.0);
  Index counted = clustering.first;
  double total = 0.0;
  for_each_query(context, rows, [&](const Query& query) {
    std::fill(clusters.begin(), clusters.end(), Cluster{});
    const auto cluster_of = [&](Index j) {
      return static_cast<std::size_t>(
          clustering.assignment[static_cast<std::size_t>(j - clustering.first)]);
    };
    const Index last = std::max(clustering.first, entered_at(query.row, recent));
    for (; counted < last; ++counted) count[cluster_of(counted)] += 1.0;
    for (Index j = clustering.first; j < last; ++j) {
      Cluster& cluster = clusters[cluster_of(j)];
      cluster.sum += query.e[j];
      cluster.squares += query.e[j] * query.e[j];
    }
    const double z = sums_of(query.e, query.row + 1).e + query.sink;
    double variance = 0.0;
    for (std::size_t c = 0; c < clusters.size(); ++c) {
      // n^2 Var = n sum e^2 - (sum e)^2, which rounding may take below 0.
      const Cluster& cluster = clusters[c];
      variance += std::max(0.0, count[c] * cluster.squares - cluster.sum * cluster.sum);
    }
    total += variance / (z * z);
  });
  const double queries = static_cast<double>(rows.size()) * context.stream.shape.heads_per_kv;
  return queries > 0.0 ? total / queries : 0.0;
}

double mean_numerator_variance(const SharedContext& context, const SlotWeights& weights,
                               Index first, Index recent) {
  const Stream& stream = context.stream;
  const std::vector<Index> rows = rows_of(context);
  std::vector<double> spectral;
  if (context.value_spectral != nullptr) {
    spectral = *context.value_spectral;
  } else {
    std::vector<double> frobenius;
    context.kernels.value_norms(stream, rows, spectral, frobenius);
  }
  // ||v||^2 / w, by token; none if nothing is drawn.
  std::vector<double> share(static_cast<std::size_t>(stream.shape.tokens), 0.0);
  std::vector<std::int32_t> tokens;
  for (Index j = first; j < stream.shape.tokens; ++j) {
    const double w = weights.weight[static_cast<std::size_t>(j - first)];
    const double* v = stream.values.row(j);
    if (w > 0.0) share[static_cast<std::size_t>(j)] = canonical_dot(v, v, stream.shape.dv) / w;
    tokens.push_back(static_cast<std::int32_t>(j));
  }

  const auto products = context.kernels.weighted_values(stream.values);
  std::vector<std::pair<double, double>> waiting;  // mu sum e^2 share; ||e||^2 ||V_i||^2
  std::vector<double> numerators;
  double total = 0.0;
  const auto finish = [&] {
    products->sums(numerators);
    const double* numerator = numerators.data();
    for (const auto& [second_moment, scale] : waiting) {
      double squares = 0.0;
      for (Index k = 0; k < stream.shape.dv; ++k) squares += numerator[k] * numerator[k];
      if (scale > 0.0) total += std::max(0.0, second_moment - squares) / scale;
      numerator += stream.shape.dv;
    }
    waiting.clear();
  };
  for_each_query(context, rows, [&](const Query& query) {
    const Index last = std::max(first, entered_at(query.row, recent));
    const double mu =
        last > first ? weights.cumulative[static_cast<std::size_t>(last - first - 1)] : 0.0;
    const double norm = spectral[query.r];
    waiting.emplace_back(mu * weighted_squares(query.e, share.data(), first, last),
                         sums_of(query.e, query.row + 1).squares * norm * norm);
    std::copy(query.e + first, query.e + last, products->ask(tokens));
    if (products->full()) finish();
  });
  finish();
  const double queries = static_cast<double>(rows.size()) * stream.shape.heads_per_kv;
  return queries > 0.0 ? total / queries : 0.0;
}

double largest_query_norm(const SharedContext& context) {
  const Stream& stream = context.stream;
  double largest = 0.0;
  for (const Index row : rows_of(context)) {
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
  net.normalizer_variance = mean_normalizer_variance(context, net.clustering, recent);
  return net;
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
  out.numerator_variance = mean_numerator_variance(context, out.weights, first, recent);
  return out;
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
