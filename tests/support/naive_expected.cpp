#include "support/naive_expected.hpp"

#include <algorithm>
#include <cmath>

#include "support/naive_positions.hpp"

namespace kvbench::test {
namespace {

NaiveMoments moments_of(const std::vector<std::vector<Real>>& rows) {
  const std::size_t d = rows.front().size();
  const Real count = static_cast<Real>(rows.size());
  NaiveMoments out{std::vector<Real>(d, 0), std::vector<Real>(d * d, 0)};
  for (const auto& row : rows) {
    for (std::size_t k = 0; k < d; ++k) out.mean[k] += row[k] / count;
  }
  for (const auto& row : rows) {
    for (std::size_t a = 0; a < d; ++a) {
      for (std::size_t b = 0; b < d; ++b) {
        out.covariance[a * d + b] += (row[a] - out.mean[a]) * (row[b] - out.mean[b]) / count;
      }
    }
  }
  return out;
}

std::vector<Real> query_row(const Stream& stream, int g, Index row) {
  const double* q = stream.query(g, row);
  return {q, q + stream.shape.d};
}

// [d][d]: column c is the mean of the turns of unit vector c.
std::vector<std::vector<Real>> mean_turn(const Rope& rope, std::size_t d, Index first,
                                         Index count) {
  std::vector<std::vector<Real>> matrix(d, std::vector<Real>(d, 0));
  for (Index t = first; t < first + count; ++t) {
    for (std::size_t c = 0; c < d; ++c) {
      std::vector<Real> unit(d, 0);
      unit[c] = 1;
      const std::vector<Real> turned = naive_rotated(rope, unit, static_cast<Real>(t));
      for (std::size_t r = 0; r < d; ++r) matrix[r][c] += turned[r] / static_cast<Real>(count);
    }
  }
  return matrix;
}

}  // namespace

NaiveMoments naive_moments(const Stream& stream, int g, Index first, Index last) {
  std::vector<std::vector<Real>> rows;
  for (Index i = first; i < last; ++i) rows.push_back(query_row(stream, g, i));
  return moments_of(rows);
}

NaiveMoments naive_future_moments(const Stream& stream, int g, Index first, Index prompt,
                                  Index future) {
  const Rope& rope = *stream.shape.rope;
  const std::size_t d = static_cast<std::size_t>(stream.shape.d);
  std::vector<std::vector<Real>> rows;
  for (Index i = first; i < prompt; ++i) {
    rows.push_back(naive_rotated(rope, query_row(stream, g, i), -static_cast<Real>(i)));
  }
  const NaiveMoments before = moments_of(rows);
  const auto a = mean_turn(rope, d, prompt, future);
  NaiveMoments out{std::vector<Real>(d, 0), std::vector<Real>(d * d, 0)};
  for (std::size_t r = 0; r < d; ++r) {
    for (std::size_t c = 0; c < d; ++c) {
      out.mean[r] += a[r][c] * before.mean[c];
      for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t j = 0; j < d; ++j) {
          out.covariance[r * d + c] += a[r][i] * before.covariance[i * d + j] * a[c][j];
        }
      }
    }
  }
  return out;
}

std::vector<Real> naive_expected_attention(const Stream& stream, Index first, Index prompt,
                                           const NaiveExpected& rule) {
  const std::size_t d = static_cast<std::size_t>(stream.shape.d);
  const Real s = stream.shape.scale;
  std::vector<Real> total(prompt - first, 0);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    const NaiveMoments moments = naive_future_moments(stream, g, first, prompt, rule.future);
    std::vector<Real> y;
    for (Index j = first; j < prompt; ++j) {
      const double* k = stream.keys.row(j);
      Real logit = 0;
      for (std::size_t a = 0; a < d; ++a) {
        logit += s * moments.mean[a] * k[a];
        for (std::size_t b = 0; b < d && rule.covariance; ++b) {
          logit += s * s / 2 * k[a] * moments.covariance[a * d + b] * k[b];
        }
      }
      y.push_back(logit);
    }
    const Real most = *std::max_element(y.begin(), y.end());
    Real sum = 0;
    for (Real& x : y) {
      x = std::exp(x - most);
      sum += x;
    }
    for (std::size_t j = 0; j < y.size(); ++j) total[j] += y[j] / sum / stream.shape.heads_per_kv;
  }
  return total;
}

std::vector<std::vector<Real>> naive_cholesky(const std::vector<double>& a, std::size_t d) {
  std::vector<std::vector<Real>> l(d, std::vector<Real>(d, 0));
  for (std::size_t r = 0; r < d; ++r) {
    for (std::size_t c = 0; c <= r; ++c) {
      Real sum = a[r * d + c];
      for (std::size_t k = 0; k < c; ++k) sum -= l[r][k] * l[c][k];
      l[r][c] = r == c ? std::sqrt(sum) : sum / l[c][c];
    }
  }
  return l;
}

}  // namespace kvbench::test
