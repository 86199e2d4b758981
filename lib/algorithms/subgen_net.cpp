#include "algorithms/subgen_net.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/canonical.hpp"
#include "kernels/distance_quantile.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 32;

std::vector<Index> rows_of(const SharedSetting& setting) {
  if (setting.scored_rows != nullptr) return *setting.scored_rows;
  const StreamShape& shape = setting.stream.shape;
  std::vector<Index> rows(static_cast<std::size_t>(shape.tokens - shape.first_query));
  std::iota(rows.begin(), rows.end(), shape.first_query);
  return rows;
}

// Calls visit(r, g, row, e) for every row and query head, e = exp(x - max) over its tokens.
template <class Visit>
void for_each_query(const SharedSetting& setting, const std::vector<Index>& rows,
                    const Visit& visit) {
  LogitBlock block;
  const Index count = static_cast<Index>(rows.size());
  for (Index first = 0; first < count; first += kRowsAtOnce) {
    const Index last = std::min(first + kRowsAtOnce, count);
    setting.kernels.logits(setting.stream, {rows.begin() + first, rows.begin() + last}, block);
    for (Index r = first; r < last; ++r) {
      for (Index g = 0; g < setting.stream.shape.group; ++g) {
        const Index place = (r - first) * setting.stream.shape.group + g;
        visit(static_cast<std::size_t>(r), rows[static_cast<std::size_t>(r)],
              block.exps.data() + place * block.tokens);
      }
    }
  }
}

// Tokens [first, entered) are in the state at a row: sinks and recent ones are not.
Index entered_at(Index row, Index recent) { return row + 1 - recent; }

SlotWeights slot_weights(const Stream& stream, const std::string& sampling, Index first) {
  SlotWeights out;
  double mu = 0.0;
  for (Index j = first; j < stream.shape.tokens; ++j) {
    double w = 1.0;
    if (sampling == "v2" || sampling == "v1") {
      const double* v = stream.values.row(j);
      w = canonical_dot(v, v, stream.shape.dv);
      if (sampling == "v1") w = std::sqrt(w);
    } else if (sampling == "k2") {
      const double* k = stream.keys.row(j);
      w = canonical_dot(k, k, stream.shape.d);
    }
    mu += w;
    out.weight.push_back(w);
    out.cumulative.push_back(mu);
  }
  return out;
}

double mean_normalizer_variance(const SharedSetting& setting, const Clustering& clustering,
                                Index recent) {
  const std::vector<Index> rows = rows_of(setting);
  const std::size_t clusters = clustering.opened_by.size();
  std::vector<double> count(clusters);
  std::vector<double> sum(clusters);
  std::vector<double> squares(clusters);
  double total = 0.0;
  for_each_query(setting, rows, [&](std::size_t, Index row, const double* e) {
    for (auto* column : {&count, &sum, &squares}) std::fill(column->begin(), column->end(), 0.0);
    const Index last = std::max(clustering.first, entered_at(row, recent));
    for (Index j = clustering.first; j < last; ++j) {
      const auto c = static_cast<std::size_t>(
          clustering.assignment[static_cast<std::size_t>(j - clustering.first)]);
      count[c] += 1.0;
      sum[c] += e[j];
      squares[c] += e[j] * e[j];
    }
    double z = 0.0;
    for (Index j = 0; j <= row; ++j) z += e[j];
    double variance = 0.0;
    for (std::size_t c = 0; c < clusters; ++c) {
      // n^2 Var = n sum e^2 - (sum e)^2, which rounding may take below 0.
      variance += std::max(0.0, count[c] * squares[c] - sum[c] * sum[c]);
    }
    total += variance / (z * z);
  });
  const double queries = static_cast<double>(rows.size()) * setting.stream.shape.group;
  return queries > 0.0 ? total / queries : 0.0;
}

double mean_numerator_variance(const SharedSetting& setting, const SlotWeights& weights,
                               Index first, Index recent) {
  const Stream& stream = setting.stream;
  const auto dv = static_cast<std::size_t>(stream.shape.dv);
  const std::vector<Index> rows = rows_of(setting);
  std::vector<double> spectral;
  std::vector<double> frobenius;
  setting.kernels.value_norms(stream, rows, spectral, frobenius);
  std::vector<double> squared_norm;
  for (Index j = 0; j < stream.shape.tokens; ++j) {
    squared_norm.push_back(
        canonical_dot(stream.values.row(j), stream.values.row(j), stream.shape.dv));
  }
  double total = 0.0;
  std::vector<double> numerator(dv);
  for_each_query(setting, rows, [&](std::size_t r, Index row, const double* e) {
    std::fill(numerator.begin(), numerator.end(), 0.0);
    double weighted = 0.0;
    const Index last = std::max(first, entered_at(row, recent));
    for (Index j = first; j < last; ++j) {
      const double w = weights.weight[static_cast<std::size_t>(j - first)];
      if (w > 0.0) weighted += e[j] * e[j] * squared_norm[static_cast<std::size_t>(j)] / w;
      const double* v = stream.values.row(j);
      for (std::size_t k = 0; k < dv; ++k) numerator[k] += e[j] * v[k];
    }
    double e_squares = 0.0;
    for (Index j = 0; j <= row; ++j) e_squares += e[j] * e[j];
    double n_squares = 0.0;
    for (const double x : numerator) n_squares += x * x;
    const double mu =
        last > first ? weights.cumulative[static_cast<std::size_t>(last - first - 1)] : 0.0;
    const double scale = e_squares * spectral[r] * spectral[r];
    if (scale > 0.0) total += std::max(0.0, mu * weighted - n_squares) / scale;
  });
  const double queries = static_cast<double>(rows.size()) * stream.shape.group;
  return queries > 0.0 ? total / queries : 0.0;
}

double largest_query_norm(const SharedSetting& setting) {
  const Stream& stream = setting.stream;
  double largest = 0.0;
  for (const Index row : rows_of(setting)) {
    for (int g = 0; g < stream.shape.group; ++g) {
      const double* q = stream.query(g, row);
      largest = std::max(largest, canonical_dot(q, q, stream.shape.d));
    }
  }
  return std::abs(stream.shape.scale) * std::sqrt(largest);
}

std::string stream_part(const Params& params, Index prompt) {
  return "from token " + std::to_string(params.tokens("sinks", prompt)) + ", recent " +
         std::to_string(params.tokens("recent", prompt));
}

}  // namespace

SharedWork subgen_net(const Params& params, Index prompt) {
  const std::string by = params.has("delta") ? "delta" : "delta_quantile";
  const std::string key =
      "subgen net, " + by + " " + to_string(params.at(by)) + ", " + stream_part(params, prompt);
  return {key, [params, by](const SharedSetting& setting) {
            const Stream& stream = setting.stream;
            const double value = params.real(by);
            const double delta = by == "delta" ? value : distance_quantile(stream.keys, value);
            const Index first =
                std::min(params.tokens("sinks", setting.prompt), stream.shape.tokens);
            SubGenNet net;
            net.clustering = setting.kernels.cluster(stream.keys, first, delta);
            net.normalizer_variance = mean_normalizer_variance(
                setting, net.clustering, params.tokens("recent", setting.prompt));
            return std::any(std::move(net));
          }};
}

SharedWork subgen_stream(const Params& params, Index prompt) {
  const std::string key =
      "subgen weights, " + params.word("sampling") + ", " + stream_part(params, prompt);
  return {key, [params](const SharedSetting& setting) {
            const Stream& stream = setting.stream;
            const Index first =
                std::min(params.tokens("sinks", setting.prompt), stream.shape.tokens);
            SubGenStream out;
            out.weights = slot_weights(stream, params.word("sampling"), first);
            std::vector<double> spectral;
            std::vector<double> frobenius;
            setting.kernels.value_norms(stream, {stream.shape.tokens - 1}, spectral, frobenius);
            const double ratio = spectral[0] > 0.0 ? frobenius[0] / spectral[0] : 0.0;
            out.srank = ratio * ratio;
            out.q_norm_bound = largest_query_norm(setting);
            out.numerator_variance = mean_numerator_variance(
                setting, out.weights, first, params.tokens("recent", setting.prompt));
            return std::any(std::move(out));
          }};
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
