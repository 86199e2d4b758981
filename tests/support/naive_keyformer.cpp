#include "support/naive_keyformer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "support/naive_positions.hpp"

namespace kvbench::test {
namespace {

Index recent_of(const NaiveKeyformer& rule) {
  return static_cast<Index>(std::floor(static_cast<double>(rule.budget) * rule.recent_fraction));
}

std::vector<Index> range(Index first, Index last) {
  std::vector<Index> out;
  for (Index j = first; j < last; ++j) out.push_back(j);
  return out;
}

// Scores f[token][head] of a method; a token that was never attended to has none.
class Scores {
 public:
  Scores(const Stream& stream, Index prompt, const NaiveKeyformer& rule)
      : stream_(stream), prompt_(prompt), rule_(rule) {}

  // Row i attends to `tokens`, ascending: every score is damped, theirs grow.
  void add_row(Index i, const std::vector<Index>& tokens) {
    const bool decode = i >= prompt_;
    const Real tau = decode ? rule_.tau_init + static_cast<Real>(i - prompt_ + 1) *
                                                   (rule_.tau_end - rule_.tau_init) /
                                                   static_cast<Real>(rule_.gen_len)
                            : rule_.tau_init;
    for (int g = 0; g < stream_.shape.heads_per_kv; ++g) {
      std::vector<Real> y;
      if (decode && rule_.cache_positions) {
        y = naive_cache_logits(stream_, g, i, tokens);
      } else {
        for (const Index j : tokens) y.push_back(naive_logit(stream_, g, i, j));
      }
      for (std::size_t m = 0; m < tokens.size(); ++m) {
        if (rule_.zeta) y[m] += rule_.zeta(g, i, tokens[m]);
        y[m] /= tau;
      }
      const Real sink = naive_sink(stream_, g) / tau;  // without noise
      const Real max = std::max(sink, *std::max_element(y.begin(), y.end()));
      Real sum = std::exp(sink - max);
      for (Real& value : y) sum += value = std::exp(value - max);
      if (rule_.damping_old) {
        for (auto& [token, f] : f_) f[g] *= rule_.damping;
      }
      for (std::size_t m = 0; m < tokens.size(); ++m) {
        const Real s = y[m] / sum;
        of(tokens[m])[g] += rule_.damping_old ? s : rule_.damping * s;
      }
    }
  }

  Real combined(Index token) {
    const std::vector<Real>& f = of(token);
    Real out = f.front();
    for (std::size_t g = 1; g < f.size(); ++g) {
      out = rule_.group == "max" ? std::max(out, f[g]) : out + f[g];
    }
    return rule_.group == "mean" ? out / static_cast<Real>(f.size()) : out;
  }

  void forget(Index token) { f_.erase(token); }

  // The `count` best of `candidates`, of equal scores the lower tokens; ascending.
  std::vector<Index> best(std::vector<Index> candidates, Index count) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](Index a, Index b) { return combined(a) > combined(b); });
    if (std::ssize(candidates) > count) {
      candidates.resize(std::max<Index>(count, 0));
    }
    std::sort(candidates.begin(), candidates.end());
    return candidates;
  }

 private:
  std::vector<Real>& of(Index token) {
    std::vector<Real>& f = f_[token];
    f.resize(stream_.shape.heads_per_kv, 0);
    return f;
  }

  const Stream& stream_;
  Index prompt_;
  const NaiveKeyformer& rule_;
  std::map<Index, std::vector<Real>> f_;
};

}  // namespace

KeptSets naive_keyformer(const Stream& stream, Index prompt, const NaiveKeyformer& rule) {
  const Index w = recent_of(rule);
  const StreamShape& shape = stream.shape;
  Scores scores(stream, prompt, rule);
  for (Index i = 0; i < prompt; ++i) scores.add_row(i, range(shape.first_visible(i), i + 1));

  const Index lo = std::min(shape.first_visible(prompt), prompt);
  std::set<Index> kept;
  if (prompt - lo <= rule.budget) {
    for (Index j = lo; j < prompt; ++j) kept.insert(j);
  } else {
    for (const Index j : scores.best(range(lo, prompt - w), rule.budget - w)) kept.insert(j);
    for (Index j = prompt - w; j < prompt; ++j) kept.insert(j);
  }
  for (Index j = 0; j < prompt; ++j) {
    if (kept.count(j) == 0) scores.forget(j);
  }

  KeptSets out;
  for (Index i = prompt; i < shape.tokens; ++i) {
    kept.insert(i);
    while (*kept.begin() < shape.first_visible(i)) {
      scores.forget(*kept.begin());
      kept.erase(kept.begin());
    }
    out.emplace_back(kept.begin(), kept.end());
    scores.add_row(i, out.back());
    if (std::ssize(kept) <= rule.budget) continue;
    Index worst = -1;
    for (const Index j : out.back()) {
      const bool recent = j > i - w;
      // Ascending: of equal scores the later token goes.
      if (!recent && (worst < 0 || scores.combined(j) <= scores.combined(worst))) worst = j;
    }
    kept.erase(worst);
    scores.forget(worst);
  }
  return out;
}

KeptSets naive_released_keyformer(const Stream& stream, Index prompt, const NaiveKeyformer& rule) {
  const Index w = recent_of(rule);
  const StreamShape& shape = stream.shape;
  Scores scores(stream, prompt, rule);
  for (Index i = 0; i < prompt; ++i) scores.add_row(i, range(shape.first_visible(i), i + 1));

  std::vector<bool> open(shape.tokens, true);
  KeptSets out;
  for (Index m = prompt; m < shape.tokens; ++m) {
    // The next row's mask has m + 1 columns; its candidates end w before the m-th.
    std::vector<bool> keep(open.size(), false);
    for (Index j = std::max<Index>(0, m + 1 - w); j <= m; ++j) {
      keep[j] = true;
    }
    const std::vector<Index> candidates = range(shape.first_visible(m), m - w);
    for (const Index j : scores.best(candidates, rule.budget - w)) {
      keep[j] = true;
    }
    std::vector<Index>& attended = out.emplace_back();
    for (Index j = 0; j <= m; ++j) {
      const auto at = static_cast<std::size_t>(j);
      open[at] = open[at] && keep[at];
      if (!open[at]) scores.forget(j);
      if (open[at] && j >= shape.first_visible(m)) attended.push_back(j);
    }
    scores.add_row(m, attended);
  }
  return out;
}

KeptSets naive_reopening_h2o(const Stream& stream, Index prompt, const NaiveKeyformer& rule) {
  const Index w = recent_of(rule);
  const StreamShape& shape = stream.shape;
  Scores scores(stream, prompt, rule);
  for (Index i = 0; i < prompt; ++i) scores.add_row(i, range(shape.first_visible(i), i + 1));
  KeptSets out;
  for (Index m = prompt; m < shape.tokens; ++m) {
    const std::vector<Index> candidates = range(shape.first_visible(m), m - w);
    std::vector<Index> attended = scores.best(candidates, rule.budget - w);
    for (const Index j : candidates) {
      if (!std::binary_search(attended.begin(), attended.end(), j)) scores.forget(j);
    }
    for (Index j = std::max(shape.first_visible(m), m + 1 - w); j <= m; ++j) attended.push_back(j);
    out.push_back(attended);
    scores.add_row(m, attended);
  }
  return out;
}

}  // namespace kvbench::test
