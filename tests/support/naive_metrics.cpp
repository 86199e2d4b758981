#include "support/naive_metrics.hpp"

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "metrics/distribution.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {
namespace {

// Long doubles, whose squares do not overflow where the numbers are doubles.
using Dense = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic>;

Real largest_singular_value(const Dense& m) {
  if (m.size() == 0) return 0;
  return Eigen::JacobiSVD<Dense>(m).singularValues()(0);
}

Real norm(const std::vector<Real>& v) {
  Real sum = 0;
  for (const Real x : v) sum += x * x;
  return std::sqrt(sum);
}

Real sum_of_sizes(const std::vector<Real>& v) {
  Real sum = 0;
  for (const Real x : v) sum += std::fabs(x);
  return sum;
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

double mean(const std::vector<double>& values) {
  Real sum = 0;
  for (const double v : values) sum += v;
  return static_cast<double>(sum / static_cast<Real>(values.size()));
}

bool reads(int g, const SketchRow& row) { return row.head < 0 || row.head == g; }

bool rows_are_tokens(const Sketch& sketch) {
  return std::none_of(sketch.rows().begin(), sketch.rows().end(),
                      [](const SketchRow& row) { return row.own_key >= 0 || row.own_value >= 0; });
}

// KL(p^ || p) over distinct tokens, from log-probabilities; p^ is what the rows say, also where the
// answer used an exact sum in their place. Undefined where no row weighs anything.
std::optional<double> naive_kl(const Stream& stream, int g, Index row, const Sketch& sketch,
                               const NaiveRow& exact) {
  std::map<Index, Real> weight;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0 && reads(g, row) && row.w_den != 0.0) weight[row.token] += row.w_den;
  }
  const bool has_sink = !stream.sinks.empty();
  if (weight.empty() && !has_sink) return std::nullopt;
  const auto logit = [&](Index token) { return exact.x[token - exact.lo]; };
  // Where the sketch attends at cache positions, its own logits make p^.
  const auto own_logit = [&](Index token) {
    if (!sketch.cache_positions) return logit(token);
    Index slot = 0;
    while (sketch[slot].token != token) ++slot;
    return naive_turned_logit(stream, g, row, token, row - (sketch.size() - 1) + slot - token);
  };
  const Real sink = has_sink ? static_cast<Real>(stream.sinks[g]) : 0;
  Real max = has_sink ? sink : own_logit(weight.begin()->first);
  for (const auto& [token, w] : weight) max = std::max(max, own_logit(token));
  Real sum = has_sink ? std::exp(sink - max) : 0;
  for (const auto& [token, w] : weight) sum += w * std::exp(own_logit(token) - max);
  Real kl = 0;
  for (const auto& [token, w] : weight) {
    const Real log_p_hat = std::log(w) + own_logit(token) - max - std::log(sum);
    const Real log_p = logit(token) - exact.max - std::log(exact.z);
    kl += std::exp(log_p_hat) * (log_p_hat - log_p);
  }
  if (has_sink) {  // an outcome like the tokens, of weight 1
    const Real log_p_hat = sink - max - std::log(sum);
    kl += std::exp(log_p_hat) * (log_p_hat - (sink - exact.max - std::log(exact.z)));
  }
  return static_cast<double>(kl);
}

Real naive_kept(int g, const Sketch& sketch, const NaiveRow& exact) {
  if (sketch.exact_numerator) return 1;
  std::set<Index> tokens;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0 && reads(g, row) && row.keeps_value) tokens.insert(row.token);
  }
  Real sum = exact.sink / exact.z;
  for (const Index token : tokens) sum += exact.p[token - exact.lo];
  return sum;
}

// The values of metrics over rows, and what is made of them.
struct Columns {
  std::map<std::string, std::vector<double>> values;
  std::map<std::string, std::optional<double>> last;
  bool row_undefined = false;
  bool row_is_last = false;  // row n - 1

  void add(const std::string& path, std::optional<double> value) {
    values[path];
    if (row_is_last && value) last[path] = std::max(last[path].value_or(*value), *value);
    if (value) {
      values[path].push_back(*value);
    } else {
      row_undefined = true;
    }
  }

  void write_mean(const std::string& path, NaiveReport& report) {
    const std::vector<double>& of = values[path];
    report.numbers[path] = of.empty() ? std::nullopt : std::optional<double>(mean(of));
  }
  // Writes the root mean square of the values of `of`, under another name.
  void write_rms(const std::string& path, const std::string& of, NaiveReport& report) {
    Real squares = 0;
    for (const double v : values[of]) squares += static_cast<Real>(v) * static_cast<Real>(v);
    const auto count = static_cast<Real>(values[of].size());
    report.numbers[path] =
        count == 0 ? std::nullopt
                   : std::optional<double>(static_cast<double>(std::sqrt(squares / count)));
  }
  void write_last(const std::string& path, NaiveReport& report) {
    report.numbers[path + ".last"] = last[path];
  }
  void write_distribution(const std::string& path, NaiveReport& report) {
    const std::vector<double>& of = values[path];
    const auto write = [&](const char* part, double (*make)(const std::vector<double>&)) {
      report.numbers[path + part] = of.empty() ? std::nullopt : std::optional<double>(make(of));
    };
    write(".mean", mean);
    write(".median", [](const std::vector<double>& v) { return naive_quantile(v, 0.5); });
    write(".p90", [](const std::vector<double>& v) { return naive_quantile(v, 0.9); });
    write(".p99", [](const std::vector<double>& v) { return naive_quantile(v, 0.99); });
    write(".max", [](const std::vector<double>& v) { return naive_quantile(v, 1.0); });
  }
};

// One row and query head: everything that needs only z and the exact row.
void add_answer(const NaiveRow& exact, const std::vector<Real>& z, Real op, Real fro,
                Columns& columns) {
  const Real error = norm(minus(z, exact.a));
  const Real a_norm = norm(exact.a);
  const Real z_norm = norm(z);
  columns.add("errors.relative_l2", ratio(error, a_norm));
  columns.add("errors.relative_l1", ratio(sum_of_sizes(minus(z, exact.a)), sum_of_sizes(exact.a)));
  Real clamped = 0;
  Real inner = 0;
  for (std::size_t k = 0; k < z.size(); ++k) {
    const Real c = std::max<Real>(exact.a[k], 1e-8L);
    clamped += c * c;
    inner += z[k] * exact.a[k];
  }
  columns.add("errors.relative_l2_posclamp_mean", ratio(error, std::sqrt(clamped)));
  const Real p_norm = norm(exact.p);
  columns.add("errors.epsilon_spectral", ratio(error, p_norm * op));
  columns.add("errors.epsilon_frobenius", ratio(error, p_norm * fro));
  const double cosine = z_norm == 0 && a_norm == 0 ? 0.0
                        : z_norm == 0 || a_norm == 0
                            ? 1.0
                            : static_cast<double>(1 - inner / (z_norm * a_norm));
  columns.add("errors.cosine_distance", cosine);
}

void write_stacked(const Dense& exact, const Dense& answer, NaiveReport& report) {
  const Dense difference = answer - exact;
  report.numbers["errors.relative_frobenius_error"] = ratio(difference.norm(), exact.norm());
  report.numbers["errors.relative_spectral_error"] =
      ratio(largest_singular_value(difference), largest_singular_value(exact));
  report.numbers["errors.relative_max_error"] =
      ratio(difference.cwiseAbs().maxCoeff(), exact.cwiseAbs().maxCoeff());
}

void write_columns(Columns& columns, NaiveReport& report) {
  for (const char* path :
       {"errors.relative_l2", "errors.relative_l1", "errors.epsilon_spectral",
        "errors.epsilon_frobenius", "errors.numerator_error", "errors.normalizer_error",
        "errors.cosine_distance", "errors.kl_divergence", "mass.kept", "mass.numerator",
        "mass.denominator"}) {
    columns.write_distribution(path, report);
  }
  columns.write_mean("errors.relative_l2_posclamp_mean", report);
  columns.write_rms("errors.relative_rms", "errors.relative_l2", report);
  columns.write_last("errors.epsilon_spectral", report);
  columns.write_last("errors.epsilon_frobenius", report);
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
  return static_cast<double>(largest_singular_value(m));
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
  const int heads_per_kv = stream.shape.heads_per_kv;
  const Index dv = stream.shape.dv;
  Dense stacked_a(std::ssize(rows) * heads_per_kv, dv);
  Dense stacked_z(stacked_a.rows(), dv);
  Columns columns;
  bool tokens_only = true;
  double empty = 0;
  double clamped = 0;
  bool has_rule = true;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Sketch& sketch = sketches[r];
    tokens_only = tokens_only && rows_are_tokens(sketch);
    const Visible visible = naive_visible(stream.shape, rows[r]);
    const Real op = naive_spectral_norm(stream.values, visible.first, visible.last + 1);
    const Real fro = naive_frobenius_norm(stream.values, visible.first, visible.last + 1);
    for (int g = 0; g < heads_per_kv; ++g) {
      const NaiveRow exact = naive_row(stream, g, rows[r]);
      const NaiveAnswer answer = naive_answer(stream, g, rows[r], sketch);
      empty += answer.empty_denominator ? 1 : 0;
      clamped += answer.clamped ? 1 : 0;
      has_rule = has_rule && sketch.answer_rule && !sketch.answer_rule->low.empty();
      const Index line = static_cast<Index>(r) * heads_per_kv + g;
      for (Index k = 0; k < dv; ++k) {
        stacked_a(line, k) = exact.a[k];
        stacked_z(line, k) = answer.z[k];
      }
      columns.row_undefined = false;
      columns.row_is_last = rows[r] == stream.shape.tokens - 1;
      add_answer(exact, answer.z, op, fro, columns);
      std::vector<Real> n_exact(exact.a);
      for (Real& x : n_exact) x *= exact.z;
      columns.add("errors.numerator_error",
                  ratio(norm(minus(answer.numerator, n_exact)), norm(exact.p) * exact.z * op));
      columns.add("errors.normalizer_error",
                  ratio(std::fabs(answer.denominator - exact.z), exact.z));
      if (tokens_only) {
        columns.add("errors.kl_divergence", naive_kl(stream, g, rows[r], sketch, exact));
        columns.add("mass.kept", static_cast<double>(naive_kept(g, sketch, exact)));
      }
      columns.add("mass.numerator", static_cast<double>(answer.numerator_mass / exact.z));
      columns.add("mass.denominator", static_cast<double>(answer.denominator / exact.z));
      report.undefined_rows += columns.row_undefined ? 1 : 0;
    }
  }
  if (!tokens_only) {
    columns.values["errors.kl_divergence"].clear();
    columns.values["mass.kept"].clear();
  }
  write_stacked(stacked_a, stacked_z, report);
  write_columns(columns, report);
  report.numbers["counters.empty_denominator"] = empty;
  if (has_rule) report.numbers["counters.clamped_answers"] = clamped;
  return report;
}

NaiveTrivial naive_trivial(const Stream& stream, const std::vector<Index>& rows) {
  NaiveTrivial out;
  const int heads_per_kv = stream.shape.heads_per_kv;
  const auto dv = static_cast<std::size_t>(stream.shape.dv);
  for (NaiveReport* report : {&out.zero, &out.mean_value}) {
    Dense stacked_a(std::ssize(rows) * heads_per_kv, stream.shape.dv);
    Dense stacked_z = Dense::Zero(stacked_a.rows(), stacked_a.cols());
    Columns columns;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const Visible visible = naive_visible(stream.shape, rows[r]);
      const Index lo = visible.first;
      const Index end = visible.last + 1;
      const Real op = naive_spectral_norm(stream.values, lo, end);
      const Real fro = naive_frobenius_norm(stream.values, lo, end);
      std::vector<Real> z(dv, 0);
      if (report == &out.mean_value) {
        for (std::size_t k = 0; k < dv; ++k) {
          for (Index j = lo; j < end; ++j) z[k] += stream.values(j, static_cast<Index>(k));
          z[k] /= static_cast<Real>(end - lo);
        }
      }
      for (int g = 0; g < heads_per_kv; ++g) {
        const NaiveRow exact = naive_row(stream, g, rows[r]);
        const Index line = static_cast<Index>(r) * heads_per_kv + g;
        for (std::size_t k = 0; k < dv; ++k) {
          stacked_a(line, static_cast<Index>(k)) = exact.a[k];
          stacked_z(line, static_cast<Index>(k)) = z[k];
        }
        columns.row_is_last = rows[r] == stream.shape.tokens - 1;
        add_answer(exact, z, op, fro, columns);
        if (report == &out.zero) {
          const auto kappa = ratio(norm(exact.p) * op, norm(exact.a));
          if (kappa) out.kappa.push_back(*kappa);
          if (columns.row_is_last && kappa) {
            out.kappa_last = std::max(out.kappa_last.value_or(*kappa), *kappa);
          }
        }
      }
    }
    write_stacked(stacked_a, stacked_z, *report);
    columns.write_mean("errors.relative_l2_posclamp_mean", *report);
    columns.write_rms("errors.relative_rms", "errors.relative_l2", *report);
    for (const char* path : {"errors.relative_l2", "errors.relative_l1", "errors.epsilon_spectral",
                             "errors.epsilon_frobenius", "errors.cosine_distance"}) {
      columns.write_distribution(path, *report);
    }
    columns.write_last("errors.epsilon_spectral", *report);
    columns.write_last("errors.epsilon_frobenius", *report);
  }
  return out;
}

std::vector<NamedPair> paired_metrics(const CellMetrics& a, const CellMetrics& b) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<NamedPair> out;
  for (const MetricNumber& number : metric_numbers()) {
    out.push_back({number.path, a[number.path].value_or(nan), b[number.path].value_or(nan)});
  }
  return out;
}

std::vector<NamedPair> paired_metrics(const CellMetrics& cell, const NaiveReport& naive) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<NamedPair> out;
  for (const auto& [path, value] : naive.numbers) {
    out.push_back({path, cell[path].value_or(nan), value.value_or(nan)});
  }
  return out;
}

bool undefined_rows_agree(Index undefined_rows, const NaiveReport& naive) {
  const bool knows_all = naive.numbers.size() == metric_numbers().size();
  return knows_all ? undefined_rows == naive.undefined_rows
                   : undefined_rows >= naive.undefined_rows;
}

}  // namespace kvbench::test
