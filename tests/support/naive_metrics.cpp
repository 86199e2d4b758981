#include "support/naive_metrics.hpp"

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "support/naive_attention.hpp"

namespace kvbench::test {
namespace {

using Dense = Eigen::MatrixXd;

double largest_singular_value(const Dense& m) {
  if (m.size() == 0) return 0.0;
  return Eigen::JacobiSVD<Dense>(m).singularValues()(0);
}

Real norm(const std::vector<Real>& v) {
  Real sum = 0;
  for (const Real x : v) sum += x * x;
  return std::sqrt(sum);
}

std::vector<Real> minus(const std::vector<Real>& a, const std::vector<Real>& b) {
  std::vector<Real> out(a);
  for (std::size_t k = 0; k < out.size(); ++k) out[k] -= b[k];
  return out;
}

// A ratio by the rule of the results: 0/0 = 0, x/0 undefined.
std::optional<double> ratio(Real numerator, Real denominator) {
  if (denominator == 0) return numerator == 0 ? std::optional<double>(0.0) : std::nullopt;
  return static_cast<double>(numerator / denominator);
}

std::optional<Distribution> summary(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  Distribution out;
  Real sum = 0;
  for (const double v : values) sum += v;
  out.mean = static_cast<double>(sum / static_cast<Real>(values.size()));
  out.median = naive_quantile(values, 0.5);
  out.p90 = naive_quantile(values, 0.9);
  out.p99 = naive_quantile(values, 0.99);
  out.max = naive_quantile(values, 1.0);
  return out;
}

bool rows_are_tokens(const Sketch& sketch) {
  return std::none_of(sketch.rows().begin(), sketch.rows().end(),
                      [](const SketchRow& row) { return row.merged_value >= 0; });
}

// KL(p^ || p) over distinct tokens, from log-probabilities; p^ is what the rows say, also where the
// answer used an exact sum in their place. Undefined where no row weighs anything.
std::optional<double> naive_kl(const Stream& stream, int g, Index row, const Sketch& sketch,
                               const NaiveRow& exact) {
  std::map<Index, Real> weight;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0 && row.w_den != 0.0) weight[row.token] += row.w_den;
  }
  if (weight.empty()) return std::nullopt;
  const auto logit = [&](Index token) {
    return exact.x[static_cast<std::size_t>(token - exact.lo)];
  };
  // Where the sketch attends at cache positions, its own logits make p^.
  const auto own_logit = [&](Index token) {
    if (!sketch.cache_positions) return logit(token);
    Index slot = 0;
    while (sketch[slot].token != token) ++slot;
    return naive_turned_logit(stream, g, row, token, row - (sketch.size() - 1) + slot - token);
  };
  Real max = own_logit(weight.begin()->first);
  for (const auto& [token, w] : weight) max = std::max(max, own_logit(token));
  Real sum = 0;
  for (const auto& [token, w] : weight) sum += w * std::exp(own_logit(token) - max);
  Real kl = 0;
  for (const auto& [token, w] : weight) {
    const Real log_p_hat = std::log(w) + own_logit(token) - max - std::log(sum);
    const Real log_p = logit(token) - exact.max - std::log(exact.z);
    kl += std::exp(log_p_hat) * (log_p_hat - log_p);
  }
  return static_cast<double>(kl);
}

Real naive_kept(const Sketch& sketch, const NaiveRow& exact) {
  if (sketch.exact_numerator) return 1;
  std::set<Index> tokens;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0 && row.holds_value) tokens.insert(row.token);
  }
  Real sum = 0;
  for (const Index token : tokens) sum += exact.p[static_cast<std::size_t>(token - exact.lo)];
  return sum;
}

struct Columns {
  std::map<std::string, std::vector<double>> values;
  bool row_undefined = false;

  void add(const std::string& name, std::optional<double> value) {
    values[name];
    if (value) {
      values[name].push_back(*value);
    } else {
      row_undefined = true;
    }
  }
};

// One row and query head: everything that needs only z and the exact row.
void add_answer(const Stream& stream, Index row, int g, const NaiveRow& exact,
                const std::vector<Real>& z, Real op, Real fro, Columns& columns,
                CellErrors& errors) {
  const Real error = norm(minus(z, exact.a));
  const Real a_norm = norm(exact.a);
  const Real z_norm = norm(z);
  columns.add("relative_l2", ratio(error, a_norm));
  Real clamped = 0;
  Real inner = 0;
  for (std::size_t k = 0; k < z.size(); ++k) {
    const Real c = std::max<Real>(exact.a[k], 1e-8L);
    clamped += c * c;
    inner += z[k] * exact.a[k];
  }
  columns.add("posclamp", ratio(error, std::sqrt(clamped)));
  const Real p_norm = norm(exact.p);
  const std::optional<double> spectral = ratio(error, p_norm * op);
  const std::optional<double> frobenius = ratio(error, p_norm * fro);
  columns.add("epsilon_spectral", spectral);
  columns.add("epsilon_frobenius", frobenius);
  if (row == stream.shape.tokens - 1 && g == 0) {
    errors.epsilon_spectral_last = spectral;
    errors.epsilon_frobenius_last = frobenius;
  }
  const double cosine = z_norm == 0 && a_norm == 0 ? 0.0
                        : z_norm == 0 || a_norm == 0
                            ? 1.0
                            : static_cast<double>(1 - inner / (z_norm * a_norm));
  columns.add("cosine_distance", cosine);
}

void finish_stacked(const Dense& exact, const Dense& answer, CellErrors& errors) {
  const Dense difference = answer - exact;
  errors.relative_frobenius_error = ratio(difference.norm(), exact.norm());
  errors.relative_spectral_error =
      ratio(largest_singular_value(difference), largest_singular_value(exact));
  errors.relative_max_error = ratio(difference.cwiseAbs().maxCoeff(), exact.cwiseAbs().maxCoeff());
}

}  // namespace

double naive_quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const std::size_t below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
}

double naive_spectral_norm(ConstMatrix matrix, Index first, Index last) {
  Dense m(last - first, matrix.cols);
  for (Index i = first; i < last; ++i) {
    for (Index k = 0; k < matrix.cols; ++k) m(i - first, k) = matrix(i, k);
  }
  return largest_singular_value(m);
}

double naive_frobenius_norm(ConstMatrix matrix, Index first, Index last) {
  Real sum = 0;
  for (Index i = first; i < last; ++i) {
    for (Index k = 0; k < matrix.cols; ++k) {
      sum += static_cast<Real>(matrix(i, k)) * static_cast<Real>(matrix(i, k));
    }
  }
  return static_cast<double>(std::sqrt(sum));
}

NaiveReport naive_report(const Stream& stream, const std::vector<Index>& rows,
                         const std::vector<Sketch>& sketches) {
  NaiveReport report;
  const int group = stream.shape.group;
  const Index dv = stream.shape.dv;
  Dense stacked_a(static_cast<Index>(rows.size()) * group, dv);
  Dense stacked_z(stacked_a.rows(), dv);
  Columns columns;
  bool tokens_only = true;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Sketch& sketch = sketches[r];
    tokens_only = tokens_only && rows_are_tokens(sketch);
    const Index lo = stream.shape.first_visible(rows[r]);
    const Real op = naive_spectral_norm(stream.values, lo, rows[r] + 1);
    const Real fro = naive_frobenius_norm(stream.values, lo, rows[r] + 1);
    for (int g = 0; g < group; ++g) {
      const NaiveRow exact = naive_row(stream, g, rows[r]);
      const NaiveAnswer answer = naive_answer(stream, g, rows[r], sketch);
      report.empty_denominator += answer.empty_denominator ? 1 : 0;
      const Index line = static_cast<Index>(r) * group + g;
      for (Index k = 0; k < dv; ++k) {
        stacked_a(line, k) = static_cast<double>(exact.a[static_cast<std::size_t>(k)]);
        stacked_z(line, k) = static_cast<double>(answer.z[static_cast<std::size_t>(k)]);
      }
      columns.row_undefined = false;
      add_answer(stream, rows[r], g, exact, answer.z, op, fro, columns, report.errors);
      std::vector<Real> n_exact(exact.a);
      for (Real& x : n_exact) x *= exact.z;
      columns.add("numerator_error",
                  ratio(norm(minus(answer.numerator, n_exact)), norm(exact.p) * exact.z * op));
      columns.add("normalizer_error", ratio(std::fabs(answer.denominator - exact.z), exact.z));
      if (tokens_only) {
        columns.add("kl", naive_kl(stream, g, rows[r], sketch, exact));
        columns.add("kept", static_cast<double>(naive_kept(sketch, exact)));
      }
      columns.add("mass_numerator", static_cast<double>(answer.numerator_mass / exact.z));
      columns.add("mass_denominator", static_cast<double>(answer.denominator / exact.z));
      report.undefined_rows += columns.row_undefined ? 1 : 0;
    }
  }
  CellErrors& e = report.errors;
  finish_stacked(stacked_a, stacked_z, e);
  e.relative_l2 = summary(columns.values["relative_l2"]);
  if (const auto posclamp = summary(columns.values["posclamp"])) {
    e.relative_l2_posclamp_mean = posclamp->mean;
  }
  e.epsilon_spectral = summary(columns.values["epsilon_spectral"]);
  e.epsilon_frobenius = summary(columns.values["epsilon_frobenius"]);
  e.numerator_error = summary(columns.values["numerator_error"]);
  e.normalizer_error = summary(columns.values["normalizer_error"]);
  e.cosine_distance = summary(columns.values["cosine_distance"]);
  if (tokens_only) {
    e.kl_divergence = summary(columns.values["kl"]);
    report.mass.kept = summary(columns.values["kept"]);
  }
  report.mass.numerator = summary(columns.values["mass_numerator"]);
  report.mass.denominator = summary(columns.values["mass_denominator"]);
  return report;
}

std::vector<NamedPair> paired_metrics(const CellErrors& a, const CellMass& a_mass,
                                      const CellErrors& b, const CellMass& b_mass) {
  std::vector<NamedPair> out;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto scalar = [&](const char* name, std::optional<double> x, std::optional<double> y) {
    out.push_back({name, x.value_or(nan), y.value_or(nan)});
  };
  const auto distribution = [&](const char* name, const std::optional<Distribution>& x,
                                const std::optional<Distribution>& y) {
    for (const auto member : {&Distribution::mean, &Distribution::median, &Distribution::p90,
                              &Distribution::p99, &Distribution::max}) {
      out.push_back({name, x ? (*x).*member : nan, y ? (*y).*member : nan});
    }
  };
  scalar("relative_frobenius_error", a.relative_frobenius_error, b.relative_frobenius_error);
  scalar("relative_spectral_error", a.relative_spectral_error, b.relative_spectral_error);
  scalar("relative_max_error", a.relative_max_error, b.relative_max_error);
  distribution("relative_l2", a.relative_l2, b.relative_l2);
  scalar("relative_l2_posclamp_mean", a.relative_l2_posclamp_mean, b.relative_l2_posclamp_mean);
  distribution("epsilon_spectral", a.epsilon_spectral, b.epsilon_spectral);
  scalar("epsilon_spectral.last", a.epsilon_spectral_last, b.epsilon_spectral_last);
  distribution("epsilon_frobenius", a.epsilon_frobenius, b.epsilon_frobenius);
  scalar("epsilon_frobenius.last", a.epsilon_frobenius_last, b.epsilon_frobenius_last);
  distribution("numerator_error", a.numerator_error, b.numerator_error);
  distribution("normalizer_error", a.normalizer_error, b.normalizer_error);
  distribution("cosine_distance", a.cosine_distance, b.cosine_distance);
  distribution("kl_divergence", a.kl_divergence, b.kl_divergence);
  distribution("mass.kept", a_mass.kept, b_mass.kept);
  distribution("mass.numerator", a_mass.numerator, b_mass.numerator);
  distribution("mass.denominator", a_mass.denominator, b_mass.denominator);
  return out;
}

}  // namespace kvbench::test
