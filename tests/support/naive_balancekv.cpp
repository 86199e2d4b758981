#include "support/naive_balancekv.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/counter_rng.hpp"

namespace kvbench::test {
namespace {

Real norm_of(ConstMatrix rows, Index row) {
  Real sum = 0;
  for (Index k = 0; k < rows.cols; ++k) {
    sum += static_cast<Real>(rows(row, k)) * static_cast<Real>(rows(row, k));
  }
  return std::sqrt(sum);
}

// i with 2^(i-1) <= norm < 2^i.
int bucket_of(Real norm) {
  int i = 0;
  while (std::pow(2.0L, i) <= norm) ++i;
  while (std::pow(2.0L, i - 1) > norm) --i;
  return i;
}

}  // namespace

void NaiveMergeAndReduce::add(Index token, const Halve& halve) {
  cells[0].push_back(token);
  ++count;
  // C^l is reduced into C^(l+1) when the count is a multiple of t 2^l, lower levels first.
  Index period = t;
  for (std::size_t level = 0; level < static_cast<std::size_t>(T); ++level, period *= 2) {
    if (count % period != 0) continue;
    const std::vector<Index> kept = halve(cells[level], static_cast<Index>(level));
    cells[level + 1].insert(cells[level + 1].end(), kept.begin(), kept.end());
    cells[level].clear();
  }
}

std::vector<NaiveBalanceState> naive_balancekv(const Stream& stream, const NaiveBalanceKv& rule) {
  std::vector<NaiveBalanceState> out;
  NaiveBalanceState state;
  state.denominator = NaiveMergeAndReduce(rule.t, rule.T);
  Real v_max = 0;
  Index fed = std::min(rule.sinks, stream.shape.tokens);

  const auto halver = [&](const std::string& purpose, Real value_norm) {
    return [&, purpose, value_norm](const std::vector<Index>& cell, Index level) {
      const CounterRng random(rule.seed, stream.id.hash(), purpose);
      const auto coin = [&](Index token, int which) {
        const auto at = static_cast<std::uint32_t>(token);
        const auto slot = static_cast<std::uint32_t>(which);
        const auto round = static_cast<std::uint32_t>(level);
        return which == 2 ? random.uniform53(at, slot, round) : random.uniform(at, slot, round);
      };
      const NaiveHalf half =
          naive_softmax_balance(stream, cell, rule.c, rule.r_key, value_norm, rule.side, coin);
      state.fail += half.walk.outside;
      return half.kept;
    };
  };
  const auto send = [&](Index token) {
    state.denominator.add(token, halver("balancekv/denominator", 0));
    const Real norm = norm_of(stream.values, token);
    int i = 0;
    Real bound = rule.largest_value_norm;
    if (rule.buckets) {
      if (norm == 0) return;
      i = bucket_of(norm);
      bound = std::pow(2.0L, i);
    }
    state.buckets.try_emplace(i, rule.t, rule.T);
    state.buckets.at(i).add(token, halver("balancekv/numerator/" + std::to_string(i), bound));
    v_max = std::max(v_max, norm);
    if (!rule.buckets || rule.erase == "off") return;
    const Real power = rule.erase == "strict" ? 2 : 1;
    const Real threshold = rule.epsilon / (2 * static_cast<Real>(rule.tokens)) *
                           std::exp(-power * stream.shape.scale * rule.r_erase * rule.r_erase) *
                           v_max;
    for (auto at = state.buckets.begin(); at != state.buckets.end();) {
      const bool low = std::pow(2.0L, at->first) <= threshold;
      state.erased += low ? 1 : 0;
      at = low ? state.buckets.erase(at) : std::next(at);
    }
  };

  for (Index row = 0; row < stream.shape.tokens; ++row) {
    while (fed < row + 1 - rule.recent) send(fed++);
    state.exact.clear();
    for (Index j = 0; j <= row; ++j) {
      if (j < rule.sinks || j >= fed) state.exact.push_back(j);
    }
    out.push_back(state);
  }
  return out;
}

std::vector<KeptPlace> naive_prefill_half(const std::vector<int>& signs) {
  const Index n = std::ssize(signs);
  const Index h = n / 2;
  if (h == 0) return {};
  const auto first_with = [&](int sign) -> Index {
    Index seen = 0;
    for (Index i = 0; i < n; ++i) {
      seen += signs[i] == sign ? 1 : 0;
      if (seen == h) return i;
    }
    return 0;
  };
  const Index c = std::max(first_with(1), first_with(-1));
  const int dropped = signs[c];
  std::vector<KeptPlace> kept;
  for (Index i = 0; i < n; ++i) {
    if (i > c) kept.push_back({i, 1});
    if (i <= c && signs[i] != dropped) kept.push_back({i, 2});
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const KeptPlace& a, const KeptPlace& b) { return a.factor > b.factor; });
  if (std::ssize(kept) > h) kept.resize(h);
  std::sort(kept.begin(), kept.end(),
            [](const KeptPlace& a, const KeptPlace& b) { return a.place < b.place; });
  return kept;
}

NaivePrefillResult naive_prefill(const Stream& stream, Index first, Index last,
                                 const NaivePrefill& rule) {
  NaivePrefillResult out;
  for (Index j = first; j < last; ++j) {
    out.tokens.push_back(j);
    out.weights.push_back(1);
  }
  const CounterRng random(rule.seed, stream.id.hash(), "balancekv_prefill/sign");
  const std::size_t block = static_cast<std::size_t>(rule.block);
  for (Index round = 0; round < rule.T; ++round) {
    std::vector<int> signs;
    for (std::size_t start = 0; start < out.tokens.size(); start += block) {
      // A whole block, zero where the tokens end.
      std::vector<std::vector<Real>> keys(
          block, std::vector<Real>(static_cast<std::size_t>(stream.shape.d), 0));
      std::vector<std::vector<Real>> values(
          block, std::vector<Real>(static_cast<std::size_t>(stream.shape.dv), 0));
      std::vector<double> coins(block, 0.5);
      const std::size_t real = std::min(block, out.tokens.size() - start);
      for (std::size_t i = 0; i < real; ++i) {
        const Index token = out.tokens[start + i];
        for (std::size_t k = 0; k < keys[i].size(); ++k) {
          keys[i][k] = stream.keys(token, static_cast<Index>(k));
        }
        for (std::size_t k = 0; k < values[i].size(); ++k) {
          values[i][k] = stream.values(token, static_cast<Index>(k)) *
                         static_cast<Real>(out.weights[start + i]);
        }
        coins[i] =
            random.uniform(static_cast<std::uint32_t>(token), 0, static_cast<std::uint32_t>(round));
      }
      if (rule.center) {
        for (Index k = 0; k < stream.shape.d; ++k) {
          Real mean = 0;
          for (const auto& key : keys) {
            mean += key[k] / static_cast<Real>(block);
          }
          for (auto& key : keys) key[k] -= mean;
        }
      }
      const auto dot = [](const std::vector<Real>& a, const std::vector<Real>& b) {
        Real sum = 0;
        for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
        return sum;
      };
      const NaiveWalk walk = naive_walk(
          static_cast<Index>(block),
          [&](Index i, Index j) {
            const auto a = static_cast<std::size_t>(i);
            const auto b = static_cast<std::size_t>(j);
            return std::exp(rule.temperature * stream.shape.scale * dot(keys[a], keys[b])) *
                   (dot(values[a], values[b]) + rule.value_offset);
          },
          rule.gamma, true, coins);
      for (std::size_t i = 0; i < real; ++i) {
        signs.push_back(walk.signs[i]);
        if (i > 0 && (walk.wanted[i] < 0 || walk.wanted[i] > 1)) ++out.clamped;
      }
    }
    std::vector<Index> tokens;
    std::vector<Index> weights;
    for (const KeptPlace& kept : naive_prefill_half(signs)) {
      tokens.push_back(out.tokens[kept.place]);
      weights.push_back(out.weights[kept.place] * kept.factor);
    }
    out.tokens = tokens;
    out.weights = weights;
  }
  return out;
}

}  // namespace kvbench::test
