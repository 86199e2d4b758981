#include "support/naive_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"

namespace kvbench::test {
namespace {

KeptSets for_each_row(const Stream& stream, Index prompt,
                      const std::function<bool(Index row, Index token)>& holds) {
  KeptSets out;
  for (Index row = prompt; row < stream.shape.tokens; ++row) {
    std::vector<Index>& kept = out.emplace_back();
    for (Index j = stream.shape.first_visible(row); j <= row; ++j) {
      if (holds(row, j)) kept.push_back(j);
    }
  }
  return out;
}

Real combine(const std::vector<Real>& per_head, const std::string& group) {
  Real out = group == "max" ? per_head.front() : 0;
  for (const Real f : per_head) out = group == "max" ? std::max(out, f) : out + f;
  return group == "mean" ? out / static_cast<Real>(per_head.size()) : out;
}

// The `count` tokens of highest score; of equal ones the lower index.
std::vector<Index> best_tokens(std::vector<std::pair<Real, Index>> scored, Index count) {
  std::sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<Index> out;
  for (const auto& [score, token] : scored) {
    if (std::ssize(out) < count) out.push_back(token);
  }
  return out;
}

}  // namespace

KeptSets naive_window(const Stream& stream, Index prompt, Index budget) {
  return for_each_row(stream, prompt, [&](Index row, Index j) { return row - j < budget; });
}

KeptSets naive_dilated_window(const Stream& stream, Index prompt, Index budget, Index dilation) {
  return for_each_row(stream, prompt, [&](Index row, Index j) {
    return (row - j) % (dilation + 1) == 0 && (row - j) / (dilation + 1) < budget;
  });
}

KeptSets naive_streaming(const Stream& stream, Index prompt, Index budget, Index sinks) {
  return for_each_row(stream, prompt,
                      [&](Index row, Index j) { return j < sinks || row - j < budget - sinks; });
}

KeptSets naive_h2o(const Stream& stream, Index prompt, Index budget, double recent_fraction,
                   const std::string& group) {
  const Index recent =
      static_cast<Index>(std::floor(static_cast<double>(budget) * recent_fraction));
  const int heads = stream.shape.heads_per_kv;
  std::map<Index, std::vector<Real>> f;  // scores of the kept tokens, per query head
  const auto score = [&](Index token) { return combine(f.at(token), group); };
  const std::vector<Real> zeros(heads, 0);

  for (Index i = 0; i < prompt; ++i) {
    f[i] = zeros;
    for (int g = 0; g < heads; ++g) {
      const NaiveRow row = naive_row(stream, g, i);
      for (Index j = row.lo; j <= i; ++j) {
        f[j][g] += row.p[j - row.lo];
      }
    }
  }
  const Index first = std::min(stream.shape.first_visible(prompt), prompt);
  f.erase(f.begin(), f.lower_bound(first));
  if (prompt - first > budget) {
    std::vector<std::pair<Real, Index>> rest;
    for (Index j = first; j < prompt - recent; ++j) rest.emplace_back(score(j), j);
    const std::vector<Index> best = best_tokens(rest, budget - recent);
    std::map<Index, std::vector<Real>> kept;
    for (const Index j : best) kept[j] = f[j];
    for (Index j = prompt - recent; j < prompt; ++j) kept[j] = f[j];
    f = kept;
  }

  KeptSets out;
  for (Index i = prompt; i < stream.shape.tokens; ++i) {
    f[i] = zeros;
    f.erase(f.begin(), f.lower_bound(stream.shape.first_visible(i)));
    std::vector<Index>& kept = out.emplace_back();
    for (const auto& [token, unused] : f) kept.push_back(token);
    for (int g = 0; g < heads; ++g) {
      std::vector<Real> x;
      for (const Index j : kept) x.push_back(naive_logit(stream, g, i, j));
      const Real max = std::max(naive_sink(stream, g), *std::max_element(x.begin(), x.end()));
      Real sum = std::exp(naive_sink(stream, g) - max);
      for (Real& e : x) sum += e = std::exp(e - max);
      for (std::size_t m = 0; m < kept.size(); ++m) {
        f[kept[m]][g] += x[m] / sum;
      }
    }
    if (std::ssize(f) > budget) {
      Index worst = -1;
      for (const Index j : kept) {  // ascending, so that of equal scores the last one stays
        if (j > i - recent) continue;
        if (worst < 0 || score(j) <= score(worst)) worst = j;
      }
      f.erase(worst);
    }
  }
  return out;
}

KeptSets naive_released_h2o(const Stream& stream, Index prompt, Index budget,
                            double recent_fraction, const std::string& group) {
  const Index recent =
      static_cast<Index>(std::floor(static_cast<double>(budget) * recent_fraction));
  const std::size_t heads = static_cast<std::size_t>(stream.shape.heads_per_kv);
  std::vector<std::vector<Real>> f;  // [token][head]
  const auto add_row = [&](Index i, const std::vector<Index>& attended) {
    for (std::size_t g = 0; g < heads; ++g) {
      std::vector<Real> x;
      for (const Index j : attended) x.push_back(naive_logit(stream, static_cast<int>(g), i, j));
      const Real sink = naive_sink(stream, static_cast<int>(g));
      const Real max = std::max(sink, *std::max_element(x.begin(), x.end()));
      Real sum = std::exp(sink - max);
      for (Real& e : x) sum += e = std::exp(e - max);
      for (std::size_t m = 0; m < attended.size(); ++m) {
        f[attended[m]][g] += x[m] / sum;
      }
    }
  };
  KeptSets out;
  for (Index i = 0; i < stream.shape.tokens; ++i) {
    f.emplace_back(heads, 0);
    const Index lo = stream.shape.first_visible(i);
    std::vector<Index> attended;
    if (i < prompt) {
      for (Index j = lo; j <= i; ++j) attended.push_back(j);
    } else {
      std::vector<std::pair<Real, Index>> scored;
      for (Index j = lo; j < i - recent; ++j) {
        scored.emplace_back(combine(f[j], group), j);
      }
      const std::vector<Index> best = best_tokens(scored, budget - recent);
      for (const auto& [score, j] : scored) {
        if (std::find(best.begin(), best.end(), j) != best.end()) {
          attended.push_back(j);
        } else {
          f[j].assign(heads, 0);
        }
      }
      // Token i - recent is masked for this one row.
      for (Index j = std::max(lo, i - recent + 1); j <= i; ++j) attended.push_back(j);
      out.push_back(attended);
    }
    add_row(i, attended);
  }
  return out;
}

KeptSets naive_oracle_topk(const Stream& stream, Index prompt, Index budget,
                           const std::string& group) {
  KeptSets out;
  for (Index i = prompt; i < stream.shape.tokens; ++i) {
    std::vector<NaiveRow> rows;
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) rows.push_back(naive_row(stream, g, i));
    std::vector<std::pair<Real, Index>> scored;
    for (Index j = rows.front().lo; j <= i; ++j) {
      std::vector<Real> p;
      for (const NaiveRow& row : rows) p.push_back(row.p[j - row.lo]);
      scored.emplace_back(combine(p, group), j);
    }
    std::vector<Index> best = best_tokens(scored, budget);
    std::sort(best.begin(), best.end());
    out.push_back(best);
  }
  return out;
}

double naive_distance(ConstMatrix points, Index i, Index j) {
  Real sum = 0;
  for (Index k = 0; k < points.cols; ++k) {
    const Real difference = static_cast<Real>(points(i, k)) - static_cast<Real>(points(j, k));
    sum += difference * difference;
  }
  return static_cast<double>(std::sqrt(sum));
}

std::vector<Index> naive_farthest_first(ConstMatrix points, Index first, Index last, Index start,
                                        Index count) {
  std::vector<Index> centres;
  std::set<Index> chosen;
  while (std::ssize(centres) < count && first < last) {
    Index best = centres.empty() ? start : -1;
    double best_distance = -1.0;
    for (Index j = first; j < last && !centres.empty(); ++j) {
      if (chosen.count(j) != 0) continue;
      double nearest = std::numeric_limits<double>::infinity();
      for (const Index c : centres) nearest = std::min(nearest, naive_distance(points, j, c));
      if (nearest > best_distance) {
        best_distance = nearest;
        best = j;
      }
    }
    centres.push_back(best);
    chosen.insert(best);
  }
  return centres;
}

double naive_covering_radius(ConstMatrix points, Index first, Index last,
                             const std::vector<Index>& centres) {
  double radius = 0.0;
  for (Index j = first; j < last; ++j) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const Index c : centres) nearest = std::min(nearest, naive_distance(points, j, c));
    radius = std::max(radius, nearest);
  }
  return radius;
}

double naive_delta_quantile(const Stream& stream, double quantile) {
  const Index n = stream.shape.tokens;
  std::vector<Index> tokens;
  if (n <= 128) {
    for (Index j = 0; j < n; ++j) tokens.push_back(j);
  } else {
    for (Index m = 0; m < 128; ++m) tokens.push_back(m * n / 128);
  }
  std::vector<double> distances;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::size_t j = i + 1; j < tokens.size(); ++j) {
      distances.push_back(naive_distance(stream.keys, tokens[i], tokens[j]));
    }
  }
  return distances.empty() ? 0.0 : naive_quantile(distances, quantile);
}

}  // namespace kvbench::test
