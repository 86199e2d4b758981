#include "support/naive_reading.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvbench::test {
namespace {

double dot(const double* a, const double* b, Index d) {
  double sum = 0.0;
  for (Index c = 0; c < d; ++c) sum += a[c] * b[c];
  return sum;
}

double capped(const StreamShape& shape, double x) {
  return shape.softcap > 0.0 ? shape.softcap * std::tanh(x / shape.softcap) : x;
}

// Numbers of the `count` largest, of equals the first.
std::vector<Index> largest(const std::vector<double>& scores, Index count) {
  std::vector<Index> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return scores[a] > scores[b]; });
  order.resize(std::min<Index>(count, std::ssize(order)));
  return order;
}

}  // namespace

std::vector<double> weighted_answer(const Stream& stream, int g, Index row,
                                    const std::vector<Index>& tokens,
                                    const std::vector<double>& weights) {
  const StreamShape& shape = stream.shape;
  std::vector<double> x;
  for (const Index j : tokens) {
    x.push_back(
        capped(shape, shape.scale * dot(stream.query(g, row), stream.keys.row(j), shape.d)));
  }
  const double most = *std::max_element(x.begin(), x.end());
  std::vector<double> answer(shape.dv, 0.0);
  double sum = 0.0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const double e = weights[t] * std::exp(x[t] - most);
    sum += e;
    for (std::size_t c = 0; c < answer.size(); ++c) {
      answer[c] += e * stream.values.row(tokens[t])[c];
    }
  }
  for (double& each : answer) each /= sum;
  return answer;
}

Answers naive_quest(const Stream& stream, Index prompt, const NaiveQuest& p) {
  const StreamShape& shape = stream.shape;
  const int heads = shape.heads_per_kv;
  Answers out;
  for (Index row = prompt; row < shape.tokens; ++row) {
    const Index n = row + 1;
    const Index pages = (n + p.page - 1) / p.page;
    std::vector<std::vector<double>> bound(static_cast<std::size_t>(heads));
    for (int g = 0; g < heads; ++g) {
      for (Index m = 0; m < pages; ++m) {
        double sum = 0.0;
        for (Index c = 0; c < shape.d; ++c) {
          double low = std::numeric_limits<double>::infinity();
          double high = -low;
          for (Index j = m * p.page; j < std::min(n, (m + 1) * p.page); ++j) {
            low = std::min(low, stream.keys(j, c));
            high = std::max(high, stream.keys(j, c));
          }
          const double q = stream.query(g, row)[c];
          sum += std::max(q * low, q * high);
        }
        bound[g].push_back(sum);
      }
    }
    out.emplace_back();
    for (int g = 0; g < heads; ++g) {
      std::vector<double> scores = bound[g];
      if (p.group) {
        scores.assign(pages, 0.0);
        for (const auto& each : bound) {
          for (std::size_t m = 0; m < scores.size(); ++m) scores[m] += each[m];
        }
      }
      std::vector<Index> chosen;
      if (!p.kernel) {
        chosen = largest(scores, std::max<Index>(3, std::min(n, p.budget) / p.page));
      } else if (pages <= p.budget / p.page) {
        chosen = largest(scores, pages);
      } else {
        scores.pop_back();
        chosen = largest(scores, std::max<Index>(0, p.budget / p.page - 1));
        chosen.push_back(pages - 1);
      }
      std::vector<Index> tokens;
      for (const Index m : chosen) {
        for (Index j = m * p.page; j < std::min(n, (m + 1) * p.page); ++j) tokens.push_back(j);
      }
      out.back().push_back(
          weighted_answer(stream, g, row, tokens, std::vector<double>(tokens.size(), 1.0)));
    }
  }
  return out;
}

// Tokens one by one, each with the largest of its page's keys times the sign of the queries' sum.
Answers naive_hsa(const Stream& stream, Index prompt, const NaiveHsa& p) {
  const StreamShape& shape = stream.shape;
  const int heads = shape.heads_per_kv;
  Answers out;
  for (Index row = prompt; row < shape.tokens; ++row) {
    const Index n = row + 1;
    std::vector<double> size(shape.d, 0.0);
    std::vector<double> sign(shape.d, 0.0);
    for (Index c = 0; c < shape.d; ++c) {
      double sum = 0.0;
      for (int g = 0; g < heads; ++g) {
        size[c] += std::fabs(stream.query(g, row)[c]);
        sum += stream.query(g, row)[c];
      }
      sign[c] = sum > 0.0 ? 1.0 : -1.0;
    }
    const std::vector<Index> channels = largest(size, p.rank);
    std::vector<double> mean(n, 0.0);
    for (int g = 0; g < heads; ++g) {
      const double* q = stream.query(g, row);
      double chosen = 0.0;
      double all = 0.0;
      for (const Index c : channels) chosen += std::fabs(q[c]);
      for (Index c = 0; c < shape.d; ++c) all += std::fabs(q[c]);
      const double divisor = chosen > 0.0 ? std::sqrt(chosen / all) : 1.0;
      std::vector<double> x(n, 0.0);
      for (Index j = 0; j < n; ++j) {
        const Index first = j / p.page * p.page;
        for (const Index c : channels) {
          double most = -std::numeric_limits<double>::infinity();
          for (Index t = first; t < std::min(first + p.page, n); ++t) {
            most = std::max(most, stream.keys(t, c) * sign[c]);
          }
          x[j] += q[c] * sign[c] * most;
        }
        x[j] = capped(shape, shape.scale * x[j] / divisor);
      }
      const double top = *std::max_element(x.begin(), x.end());
      double sum = 0.0;
      for (const double each : x) sum += std::exp(each - top);
      for (Index j = 0; j < n; ++j) mean[j] += std::exp(x[j] - top) / sum / heads;
    }
    const std::vector<Index> tokens = largest(mean, p.budget);
    out.emplace_back();
    for (int g = 0; g < heads; ++g) {
      out.back().push_back(
          weighted_answer(stream, g, row, tokens, std::vector<double>(tokens.size(), 1.0)));
    }
  }
  return out;
}

Answers naive_sparq(const Stream& stream, Index prompt, const NaiveSparq& p) {
  const StreamShape& shape = stream.shape;
  const int heads = shape.heads_per_kv;
  Answers out;
  for (Index row = prompt; row < shape.tokens; ++row) {
    const Index n = row + 1;
    std::vector<double> size(shape.d, 0.0);
    for (int g = 0; g < heads; ++g) {
      for (Index c = 0; c < shape.d; ++c) {
        size[c] += std::fabs(stream.query(g, row)[c]);
      }
    }
    const std::vector<Index> channels = largest(size, p.rank);
    std::vector<std::vector<double>> y(static_cast<std::size_t>(heads));
    std::vector<double> total(n, 0.0);
    for (int g = 0; g < heads; ++g) {
      const double* q = stream.query(g, row);
      double part = 0.0;
      double all = 0.0;
      for (const Index c : channels) part += std::fabs(q[c]);
      for (Index c = 0; c < shape.d; ++c) all += std::fabs(q[c]);
      const double coverage = part == 0.0 ? 1.0 : part / all;
      for (Index j = 0; j < n; ++j) {
        double sum = 0.0;
        for (const Index c : channels) sum += q[c] * stream.keys(j, c);
        const double x = capped(shape, shape.scale / std::sqrt(coverage) * sum);
        y[g].push_back(x);
        total[j] += x;
      }
    }
    for (Index j = std::max<Index>(0, n - 1 - p.recent); j < n; ++j) {
      total[j] = std::numeric_limits<double>::infinity();
    }
    const std::vector<Index> chosen = largest(total, std::min(p.k + 1, n));
    out.emplace_back();
    for (int g = 0; g < heads; ++g) {
      std::vector<double> answer =
          weighted_answer(stream, g, row, chosen, std::vector<double>(chosen.size(), 1.0));
      if (p.mean_value) {
        const std::vector<double>& logits = y[g];
        const double most = *std::max_element(logits.begin(), logits.end());
        double part = 0.0;
        double all = 0.0;
        for (const Index j : chosen) part += std::exp(logits[j] - most);
        for (const double x : logits) all += std::exp(x - most);
        const double alpha = part / all;
        for (Index c = 0; c < shape.dv; ++c) {
          double mean = 0.0;
          for (Index j = 0; j < n; ++j) mean += stream.values(j, c) / static_cast<double>(n);
          double& each = answer[c];
          each = alpha * each + (1.0 - alpha) * mean;
        }
      }
      out.back().push_back(answer);
    }
  }
  return out;
}

Answers naive_loki(const Stream& stream, Index prompt, const NaiveLoki& p) {
  const StreamShape& shape = stream.shape;
  const int heads = shape.heads_per_kv;
  const Index first = shape.window > 0 ? std::max<Index>(0, prompt - shape.window + 1) : 0;
  // Columns are the axes that queries and keys are projected on.
  Eigen::MatrixXd axes = Eigen::MatrixXd::Zero(shape.d, p.rank);
  if (p.basis == "channels") {
    std::vector<double> size(shape.d, 0.0);
    for (Index j = first; j < prompt; ++j) {
      for (int g = 0; g < heads; ++g) {
        for (Index c = 0; c < shape.d; ++c) {
          size[c] += std::fabs(stream.query(g, j)[c] * stream.keys(j, c));
        }
      }
    }
    std::vector<Index> channels = largest(size, p.rank);
    for (Index r = 0; r < p.rank; ++r) axes(channels[r], r) = 1.0;
  } else {
    Eigen::MatrixXd keys(prompt - first, shape.d);
    for (Index j = first; j < prompt; ++j) {
      for (Index c = 0; c < shape.d; ++c) keys(j - first, c) = stream.keys(j, c);
      if (p.basis != "pca_pre") continue;
      const auto pairs = std::ssize(shape.rope->inv_freq);
      for (Index i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(j) * shape.rope->inv_freq[i];
        const Index a = shape.rope->interleaved ? 2 * i : i;
        const Index b = shape.rope->interleaved ? 2 * i + 1 : i + pairs;
        const double x = stream.keys(j, a);
        const double y = stream.keys(j, b);
        keys(j - first, a) = x * std::cos(angle) + y * std::sin(angle);
        keys(j - first, b) = y * std::cos(angle) - x * std::sin(angle);
      }
    }
    if (p.centre) keys.rowwise() -= keys.colwise().mean().eval();
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(keys.transpose() * keys);
    for (Index r = 0; r < p.rank; ++r) axes.col(r) = solver.eigenvectors().col(shape.d - 1 - r);
  }
  const auto project = [&](const double* vector) -> Eigen::VectorXd {
    return axes.transpose() * Eigen::Map<const Eigen::VectorXd>(vector, shape.d);
  };
  const auto label = [&](Index j) {
    Eigen::VectorXd out = project(stream.keys.row(j));
    if (p.label_bits == 16) return out;
    const double low = out.minCoeff();
    const double step = (out.maxCoeff() - low) / 15.0;
    for (Index r = 0; r < p.rank && step > 0.0; ++r) {
      const double code = std::rint((out(r) - low) / step);
      out(r) = low + step * std::min(15.0, std::max(0.0, code));
    }
    return out;
  };
  Answers out;
  for (Index row = prompt; row < shape.tokens; ++row) {
    const Index lo = shape.window > 0 ? std::max<Index>(0, row - shape.window + 1) : 0;
    std::vector<std::vector<double>> scores(static_cast<std::size_t>(heads));
    for (Index j = lo; j <= row; ++j) {
      for (int g = 0; g < heads; ++g) {
        scores[g].push_back(project(stream.query(g, row)).dot(label(j)));
      }
    }
    out.emplace_back();
    for (int g = 0; g < heads; ++g) {
      std::vector<double> mine = scores[g];
      if (p.group) {
        std::fill(mine.begin(), mine.end(), 0.0);
        for (const auto& each : scores) {
          for (std::size_t j = 0; j < mine.size(); ++j) mine[j] += each[j];
        }
      }
      for (Index j = std::max(lo, row + 1 - p.recent); j <= row; ++j) {
        mine[j - lo] = std::numeric_limits<double>::infinity();
      }
      std::vector<Index> tokens = largest(mine, p.budget);
      for (Index& token : tokens) token += lo;
      out.back().push_back(
          weighted_answer(stream, g, row, tokens, std::vector<double>(tokens.size(), 1.0)));
    }
  }
  return out;
}

}  // namespace kvbench::test
