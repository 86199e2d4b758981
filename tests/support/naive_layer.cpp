#include "support/naive_layer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"

namespace kvbench::test {
namespace {

using Vector = std::vector<Real>;

// x W_h.
Vector projected(const NaiveLayer& layer, Index head, Index row,
                 const std::function<double(Index, Index, Index)>& x) {
  Vector out(static_cast<std::size_t>(layer.hidden), 0);
  for (Index c = 0; c < layer.hidden; ++c) {
    for (Index k = 0; k < layer.dv; ++k) {
      out[c] += static_cast<Real>(x(head, row, k)) * static_cast<Real>(layer.weight(head, k, c));
    }
  }
  return out;
}

Real euclidean(const Vector& v) {
  Real squares = 0;
  for (const Real x : v) squares += x * x;
  return std::sqrt(squares);
}

Real absolute(const Vector& v) {
  Real sum = 0;
  for (const Real x : v) sum += std::fabs(x);
  return sum;
}

std::optional<double> quotient(Real numerator, Real denominator) {
  if (denominator == 0) return numerator == 0 ? std::optional<double>(0.0) : std::nullopt;
  return static_cast<double>(numerator / denominator);
}

// The fewest heads with half of the squares, by trying all numbers of them.
double heads_with_half(Vector norms) {
  std::sort(norms.begin(), norms.end(), std::greater<>());
  Real all = 0;
  for (const Real norm : norms) all += norm * norm;
  for (std::size_t k = 0;; ++k) {
    Real sum = 0;
    for (std::size_t i = 0; i < k; ++i) sum += norms[i] * norms[i];
    if (2 * sum >= all * (1 - 1e-12L)) {
      return static_cast<double>(k) / static_cast<double>(norms.size());
    }
  }
}

}  // namespace

NaiveLayerReport naive_layer_report(const NaiveLayer& layer) {
  std::map<std::string, std::vector<double>> values;
  NaiveLayerReport report;
  bool any_residual = false;
  for (Index r = 0; r < layer.rows; ++r) any_residual = any_residual || layer.residual(r);
  for (Index r = 0; r < layer.rows; ++r) {
    Vector exact(static_cast<std::size_t>(layer.hidden), 0);
    Vector error(exact);
    Vector norms;
    Real sum_of_norms = 0;
    for (Index h = 0; h < layer.query_heads; ++h) {
      const Vector a = projected(layer, h, r, layer.exact);
      const Vector e = projected(layer, h, r, layer.error);
      for (std::size_t c = 0; c < exact.size(); ++c) {
        exact[c] += a[c];
        error[c] += e[c];
      }
      norms.push_back(euclidean(e));
      sum_of_norms += norms.back();
    }
    bool left_out = false;
    const auto add = [&](const char* name, std::optional<double> value) {
      values[name];
      if (value) values[name].push_back(*value);
      left_out = left_out || !value;
    };
    add("relative_output_l2", quotient(euclidean(error), euclidean(exact)));
    add("relative_output_l1", quotient(absolute(error), absolute(exact)));
    const bool rounding = sum_of_norms <= 1e-13L * euclidean(exact);
    add("cancellation", rounding ? 0.0 : quotient(euclidean(error), sum_of_norms));
    add("half_heads", rounding ? 0.0 : heads_with_half(norms));
    values["residual_ratio"];
    if (any_residual) {
      const auto x = layer.residual(r);
      add("residual_ratio", x ? quotient(euclidean(error), *x) : std::nullopt);
    }
    report.undefined_rows += left_out ? 1 : 0;
  }
  for (const auto& [name, of] : values) {
    const auto write = [&](const char* part, double (*make)(const std::vector<double>&)) {
      report.numbers["errors." + name + "." + part] =
          of.empty() ? std::nullopt : std::optional<double>(make(of));
    };
    write("mean", [](const std::vector<double>& v) {
      Real sum = 0;
      for (const double x : v) sum += x;
      return static_cast<double>(sum / static_cast<Real>(v.size()));
    });
    write("median", [](const std::vector<double>& v) { return naive_quantile(v, 0.5); });
    write("p90", [](const std::vector<double>& v) { return naive_quantile(v, 0.9); });
    write("p99", [](const std::vector<double>& v) { return naive_quantile(v, 0.99); });
    write("max", [](const std::vector<double>& v) { return naive_quantile(v, 1.0); });
  }
  return report;
}

}  // namespace kvbench::test
