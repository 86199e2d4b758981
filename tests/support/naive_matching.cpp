#include "support/naive_matching.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvbench::test {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

struct Dense {
  Index first = 0;   // token of column 0
  RealRows logits;   // [references][middle], -inf where not seen
  RealRows exps;     // under the reference's largest
  RealRows weights;  // softmax
  RealRows sums;     // [references][1]
  RealRows outputs;  // [references][dv]
};

// References that see nothing of the middle are left out.
Dense dense(const Stream& stream, Index prompt, const NaiveMatching& rule) {
  Dense out;
  const Index visible = std::min(stream.shape.first_visible(prompt), prompt);
  out.first = std::max(visible, std::min(rule.sinks, prompt));
  const Index end = prompt - std::min(rule.recent, prompt);
  const Index from = rule.rows == 0 ? 0 : std::max<Index>(0, prompt - rule.rows);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    for (Index i = from; i < prompt; ++i) {
      std::vector<Real> x;
      for (Index j = out.first; j < end; ++j) {
        const bool seen = !rule.masked || (j <= i && j >= stream.shape.first_visible(i));
        x.push_back(seen ? naive_logit(stream, g, i, j) : -std::numeric_limits<Real>::infinity());
      }
      const Real largest = *std::max_element(x.begin(), x.end());
      if (std::isinf(largest)) continue;
      std::vector<Real> e;
      Real sum = 0;
      for (const Real each : x) {
        e.push_back(std::exp(each - largest));
        sum += e.back();
      }
      std::vector<Real> a;
      std::vector<Real> answer(at(stream.shape.dv), 0);
      for (std::size_t j = 0; j < e.size(); ++j) {
        a.push_back(e[j] / sum);
        for (Index k = 0; k < stream.shape.dv; ++k) {
          answer[at(k)] +=
              a[j] * static_cast<Real>(stream.values(out.first + static_cast<Index>(j), k));
        }
      }
      out.logits.push_back(x);
      out.exps.push_back(e);
      out.weights.push_back(a);
      out.sums.push_back({sum});
      out.outputs.push_back(answer);
    }
  }
  return out;
}

RealRows columns(const RealRows& x, const std::vector<Index>& chosen) {
  RealRows out;
  for (const auto& row : x) {
    std::vector<Real>& some = out.emplace_back();
    for (const Index j : chosen) some.push_back(row[at(j)]);
  }
  return out;
}

Real squares(const RealRows& x) {
  Real sum = 0;
  for (const auto& row : x) {
    for (const Real each : row) sum += each * each;
  }
  return sum;
}

RealRows product(const RealRows& x, const RealRows& c) {
  RealRows out;
  for (const auto& row : x) {
    std::vector<Real>& to = out.emplace_back(c.front().size(), 0);
    for (std::size_t k = 0; k < row.size(); ++k) {
      for (std::size_t j = 0; j < to.size(); ++j) to[j] += row[k] * c[k][j];
    }
  }
  return out;
}

Real relative(const RealRows& got, const RealRows& wanted) {
  RealRows off = got;
  for (std::size_t r = 0; r < off.size(); ++r) {
    for (std::size_t k = 0; k < off[r].size(); ++k) off[r][k] -= wanted[r][k];
  }
  return std::sqrt(squares(off) / squares(wanted));
}

std::vector<Index> best(const std::vector<Real>& scores, Index count,
                        const std::vector<bool>& out) {
  std::vector<bool> taken = out;
  std::vector<Index> chosen;
  while (std::ssize(chosen) < count) {
    Index winner = -1;
    for (Index j = 0; j < std::ssize(scores); ++j) {
      if (!taken[at(j)] && (winner < 0 || scores[at(j)] > scores[at(winner)])) winner = j;
    }
    if (winner < 0) break;
    taken[at(winner)] = true;
    chosen.push_back(winner);
  }
  return chosen;
}

std::vector<Real> clamped_solution(const RealRows& m, const RealRows& y,
                                   const NaiveMatching& rule) {
  const Real shift = rule.ridge * squares(m) / static_cast<Real>(m.front().size());
  std::vector<Real> out;
  for (const auto& row : naive_least_squares(m, y, shift)) {
    out.push_back(std::clamp(row[0], std::exp(rule.low), std::exp(rule.high)));
  }
  return out;
}

RealRows as_column(const std::vector<Real>& x) {
  RealRows out;
  for (const Real each : x) out.push_back({each});
  return out;
}

// Chosen in order of choice, with their weights.
struct Pursued {
  std::vector<Index> chosen;
  std::vector<Real> weights;
};

Pursued pursued(const Dense& all, Index count, const NaiveMatching& rule) {
  Pursued p;
  std::vector<bool> gone(all.exps.front().size(), false);
  const auto residual = [&] {
    RealRows left = all.sums;
    for (std::size_t r = 0; r < left.size(); ++r) {
      for (std::size_t i = 0; i < p.chosen.size(); ++i) {
        left[r][0] -= p.weights[i] * all.exps[r][at(p.chosen[i])];
      }
    }
    return left;
  };
  for (int round = 0;; ++round) {
    for (Index step = 1; std::ssize(p.chosen) < count; ++step) {
      const RealRows left = residual();
      std::vector<Real> correlation(gone.size(), 0);
      for (std::size_t r = 0; r < left.size(); ++r) {
        for (std::size_t j = 0; j < gone.size(); ++j) correlation[j] += all.exps[r][j] * left[r][0];
      }
      const Index more = std::min(rule.keys_per_step, count - std::ssize(p.chosen));
      const std::vector<Index> winners = best(correlation, more, gone);
      if (winners.empty()) break;
      for (const Index j : winners) {
        gone[at(j)] = true;
        p.chosen.push_back(j);
        p.weights.push_back(std::exp(rule.low));
      }
      if (step % rule.steps_per_solve == 0 || std::ssize(p.chosen) == count) {
        p.weights = clamped_solution(columns(all.exps, p.chosen), all.sums, rule);
      }
    }
    if (round == 3) return p;
    Pursued left;
    for (std::size_t i = 0; i < p.chosen.size(); ++i) {
      if (p.weights[i] >= std::exp(rule.drop)) left.chosen.push_back(p.chosen[i]);
    }
    if (left.chosen.size() == p.chosen.size()) return p;
    p = left;
    if (!p.chosen.empty()) {
      p.weights = clamped_solution(columns(all.exps, p.chosen), all.sums, rule);
    }
  }
}

std::vector<Real> fitted_weights(const RealRows& m, const RealRows& y, const NaiveMatching& rule) {
  std::vector<Real> w = clamped_solution(m, y, rule);
  const Real smoothness = naive_top_eigenvalue(m);
  for (Index step = 0; step < rule.steps; ++step) {
    RealRows off = product(m, as_column(w));
    for (std::size_t r = 0; r < off.size(); ++r) off[r][0] -= y[r][0];
    std::vector<Real> next = w;
    for (std::size_t r = 0; r < off.size(); ++r) {
      for (std::size_t i = 0; i < w.size(); ++i) next[i] -= m[r][i] * off[r][0] / smoothness;
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = std::clamp(next[i], std::exp(rule.low), std::exp(rule.high));
    }
  }
  return w;
}

std::vector<Real> scores_of(const Dense& all, const std::string& select) {
  std::vector<Real> out(all.weights.front().size(), 0);
  for (const auto& row : all.weights) {
    for (std::size_t j = 0; j < out.size(); ++j) {
      out[j] = select == "max"    ? std::max(out[j], row[j])
               : select == "mean" ? out[j] + row[j]
                                  : out[j] + row[j] * row[j];
    }
  }
  return out;
}

}  // namespace

RealRows naive_least_squares(const RealRows& x, const RealRows& y, Real shift) {
  const std::size_t t = x.front().size();
  const std::size_t m = y.front().size();
  RealRows a(t, std::vector<Real>(t + m, 0));
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t i = 0; i < t; ++i) {
      for (std::size_t j = 0; j < t; ++j) a[i][j] += x[r][i] * x[r][j];
      for (std::size_t k = 0; k < m; ++k) a[i][t + k] += x[r][i] * y[r][k];
    }
  }
  for (std::size_t i = 0; i < t; ++i) a[i][i] += shift;
  for (std::size_t i = 0; i < t; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i; r < t; ++r) {
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    for (std::size_t r = 0; r < t; ++r) {
      if (r == i) continue;
      const Real factor = a[r][i] / a[i][i];
      for (std::size_t c = i; c < t + m; ++c) a[r][c] -= factor * a[i][c];
    }
  }
  RealRows out(t, std::vector<Real>(m));
  for (std::size_t i = 0; i < t; ++i) {
    for (std::size_t k = 0; k < m; ++k) out[i][k] = a[i][t + k] / a[i][i];
  }
  return out;
}

Real naive_top_eigenvalue(const RealRows& x) {
  const std::size_t t = x.front().size();
  RealRows gram(t, std::vector<Real>(t, 0));
  for (const auto& row : x) {
    for (std::size_t i = 0; i < t; ++i) {
      for (std::size_t j = 0; j < t; ++j) gram[i][j] += row[i] * row[j];
    }
  }
  std::vector<Real> v(t, 1);
  Real value = 0;
  for (int step = 0; step < 3000; ++step) {
    std::vector<Real> next(t, 0);
    for (std::size_t i = 0; i < t; ++i) {
      for (std::size_t j = 0; j < t; ++j) next[i] += gram[i][j] * v[j];
    }
    Real norm = 0;
    for (const Real each : next) norm += each * each;
    norm = std::sqrt(norm);
    if (norm == 0) return 0;
    const bool settled = std::abs(norm - value) <= 1e-18L * norm;
    value = norm;
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = next[i] / norm;
    if (settled) break;
  }
  return value;
}

NaiveMatched naive_matching(const Stream& stream, Index prompt, const NaiveMatching& rule) {
  const Dense all = dense(stream, prompt, rule);
  const Index visible = std::min(stream.shape.first_visible(prompt), prompt);
  const Index count = rule.budget - std::max<Index>(0, rule.sinks - visible) - rule.recent;
  NaiveMatched out;
  if (rule.select == "omp") {
    const Pursued p = pursued(all, count, rule);
    out.tokens = p.chosen;
    std::sort(out.tokens.begin(), out.tokens.end());
    for (const Index j : out.tokens) {
      const auto place = std::find(p.chosen.begin(), p.chosen.end(), j) - p.chosen.begin();
      out.weights.push_back(p.weights[at(place)]);
    }
  } else {
    out.tokens =
        best(scores_of(all, rule.select), count, std::vector<bool>(all.exps.front().size(), false));
    std::sort(out.tokens.begin(), out.tokens.end());
    out.weights = fitted_weights(columns(all.exps, out.tokens), all.sums, rule);
  }
  if (!rule.fits_weights) out.weights.assign(out.tokens.size(), 1);
  const RealRows m = columns(all.exps, out.tokens);
  out.sum_residual = relative(product(m, as_column(out.weights)), all.sums);

  RealRows x = columns(all.logits, out.tokens);
  for (auto& row : x) {
    const Real largest = *std::max_element(row.begin(), row.end());
    Real sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = std::isinf(largest) ? 0 : out.weights[i] * std::exp(row[i] - largest);
      sum += row[i];
    }
    for (Real& each : row) each = sum > 0 ? each / sum : 0;
  }
  if (rule.fits_values) {
    out.values = naive_least_squares(
        x, all.outputs, rule.ridge * squares(x) / static_cast<Real>(out.tokens.size()));
  } else {
    for (const Index j : out.tokens) {
      const double* v = stream.values.row(all.first + j);
      out.values.emplace_back(v, v + stream.shape.dv);
    }
  }
  out.output_residual = relative(product(x, out.values), all.outputs);
  for (Index& token : out.tokens) token += all.first;
  return out;
}

}  // namespace kvbench::test
