#include "support/naive_observation_window.hpp"

#include <algorithm>
#include <limits>

namespace kvbench::test {

std::vector<Real> naive_observation_scores(const Stream& stream, Index prompt,
                                           const NaiveObservation& rule) {
  const Index first = std::min(stream.shape.first_visible(prompt), prompt);
  const Index end = prompt - rule.window;
  std::vector<std::vector<Real>> sums;  // [G][tokens before the window]
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    std::vector<Real>& sum = sums.emplace_back(static_cast<std::size_t>(end - first), 0);
    for (Index i = end; i < prompt; ++i) {
      const NaiveRow row = naive_row(stream, g, i);
      for (Index j = std::max(first, row.lo); j < end; ++j) {
        sum[j - first] += row.p[j - row.lo];
      }
    }
  }
  std::vector<Real> reduced = sums.front();
  for (std::size_t j = 0; j < reduced.size(); ++j) {
    for (std::size_t g = 1; g < sums.size(); ++g) {
      reduced[j] = rule.group == "max" ? std::max(reduced[j], sums[g][j]) : reduced[j] + sums[g][j];
    }
    if (rule.group == "mean") reduced[j] /= stream.shape.heads_per_kv;
  }
  return reduced;
}

std::vector<Real> naive_pooled(const std::vector<Real>& scores, const NaiveObservation& rule) {
  // Stride 1, padded on both sides by half a kernel.
  const Index reach = (rule.kernel - 1) / 2;
  const Real pad = rule.average ? 0 : -std::numeric_limits<Real>::infinity();
  std::vector<Real> padded(reach, pad);
  padded.insert(padded.end(), scores.begin(), scores.end());
  padded.insert(padded.end(), static_cast<std::size_t>(reach), pad);
  std::vector<Real> pooled;
  for (Index j = 0; j < std::ssize(scores); ++j) {
    Real out = pad;
    for (Index k = 0; k < rule.kernel; ++k) {
      const Real x = padded[j + k];
      out = rule.average ? out + x : std::max(out, x);
    }
    pooled.push_back(rule.average ? out / static_cast<Real>(rule.kernel) : out);
  }
  return pooled;
}

std::vector<Real> naive_observed(const Stream& stream, Index prompt, const NaiveObservation& rule) {
  const Index first = std::min(stream.shape.first_visible(prompt), prompt);
  const Index end = prompt - rule.window;
  const int heads = stream.shape.heads_per_kv;
  std::vector<std::vector<Real>> scores;  // [G][tokens before the window]
  for (int g = 0; g < heads; ++g) {
    std::vector<Real>& mine = scores.emplace_back(static_cast<std::size_t>(end - first), 0);
    for (Index i = end; i < prompt; ++i) {
      const NaiveRow row = naive_row(stream, g, i);
      for (Index j = std::max(first, row.lo); j < end; ++j) {
        Real p = row.p[j - row.lo];
        if (rule.weighs_rows) p *= static_cast<Real>(i - row.lo);
        Real& score = mine[j - first];
        score = rule.reduce == "max" ? std::max(score, p) : score + p;
      }
    }
    if (rule.reduce == "mean") {
      for (Real& score : mine) score /= static_cast<Real>(rule.window);
    }
    if (rule.pools_first) mine = naive_pooled(mine, rule);
  }
  std::vector<Real> combined(scores.front().size(), 0);
  for (std::size_t j = 0; j < combined.size(); ++j) {
    for (const std::vector<Real>& mine : scores) {
      combined[j] = rule.group == "max" ? std::max(combined[j], mine[j]) : combined[j] + mine[j];
    }
    if (rule.group == "mean") combined[j] /= static_cast<Real>(heads);
  }
  return rule.pools_first ? combined : naive_pooled(combined, rule);
}

std::vector<Index> naive_observation_kept(const Stream& stream, Index prompt, Index window,
                                          const std::vector<Real>& pooled, Index selected) {
  const Index first = std::min(stream.shape.first_visible(prompt), prompt);
  std::vector<Index> kept;
  std::vector<bool> taken(pooled.size(), false);
  for (Index n = 0; n < selected; ++n) {
    Index best = -1;
    for (Index j = 0; j < std::ssize(pooled); ++j) {
      if (taken[j]) continue;
      if (best < 0 || pooled[j] > pooled[best]) {
        best = j;
      }
    }
    if (best < 0) break;
    taken[best] = true;
    kept.push_back(first + best);
  }
  std::sort(kept.begin(), kept.end());
  for (Index j = prompt - window; j < prompt; ++j) kept.push_back(j);
  return kept;
}

Index naive_pyramid_selected(Index length, Index budget, Index window, Index beta, Index layers,
                             Index layer) {
  const Index mean = budget - window;
  if (length < 2 * mean) return mean;
  Index low = mean / beta;
  Index high = 2 * mean - low;
  if (high >= length - window) {
    high = length - window;
    low = 2 * mean - high;
  }
  const Index step = layers == 1 ? 0 : (high - low) / (layers - 1);
  return high - layer * step;
}

}  // namespace kvbench::test
