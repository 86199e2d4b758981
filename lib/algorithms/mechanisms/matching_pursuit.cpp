#include "algorithms/mechanisms/matching_pursuit.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr int kDropRounds = 3;
constexpr Index kReferencesOfTask = 48;
constexpr Index kTokensOfTask = 256;

class Pursuit {
 public:
  Pursuit(const AlignedDoubles& exponentials, const std::vector<double>& sums, Index tokens,
          const PursuitRule& rule)
      : rule_(rule),
        target_(sums),
        tokens_(tokens),
        references_(std::ssize(sums)),
        e_(exponentials),
        residual_(sums),
        taken_(tokens, 0),
        correlation_(tokens) {}

  void choose(Index count) {
    for (Index step = 1; size() < count; ++step) {
      const Index before = size();
      while (size() < std::min(count, before + rule_.keys_per_step)) {
        if (size() == before) correlate();
        const Index best = best_free();
        if (best < 0) break;
        take(best);
      }
      const bool over = size() == before || size() == count;
      if (over || step % rule_.steps_per_solve == 0) {
        solve();
      } else {
        weights_.resize(chosen_.size(), rule_.lowest);
        set_residual();
      }
      if (size() == before) break;
    }
  }

  // Whether any token was dropped, for good.
  bool drop() {
    std::vector<Index> left;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      if (weights_[i] >= rule_.dropped) left.push_back(chosen_[i]);
    }
    if (left.size() == chosen_.size()) return false;
    chosen_.clear();
    gram_.clear();
    moments_.clear();
    for (const Index token : left) take(token);
    solve();
    return true;
  }

  PursuedTokens result(Index first_token) const {
    std::vector<std::size_t> order(chosen_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return chosen_[a] < chosen_[b]; });
    PursuedTokens out;
    for (const std::size_t i : order) {
      out.tokens.push_back(static_cast<std::int32_t>(first_token + chosen_[i]));
      out.weights.push_back(weights_[i]);
    }
    return out;
  }

 private:
  Index size() const { return std::ssize(chosen_); }
  const double* column(Index token) const { return e_.data() + token * references_; }

  double product(Index token, const std::vector<double>& x) const {
    return canonical_dot(column(token), x.data(), references_);
  }

  void correlate() {
    parallel_for((tokens_ + kTokensOfTask - 1) / kTokensOfTask, [&](Index task) {
      const Index end = std::min(tokens_, (task + 1) * kTokensOfTask);
      for (Index j = task * kTokensOfTask; j < end; ++j) {
        correlation_[j] = product(j, residual_);
      }
    });
  }

  Index best_free() const {
    Index best = -1;
    for (Index j = 0; j < tokens_; ++j) {
      const std::size_t at = j;
      if (taken_[at] != 0) continue;
      if (best < 0 || correlation_[at] > correlation_[best]) best = j;
    }
    return best;
  }

  void take(Index token) {
    taken_[token] = 1;
    chosen_.push_back(token);
    moments_.push_back(product(token, target_));
    std::vector<double>& with = gram_.emplace_back();
    with.reserve(chosen_.size());
    for (const Index other : chosen_) {
      with.push_back(canonical_dot(column(token), column(other), references_));
    }
  }

  void solve() {
    const Index t = size();
    weights_.clear();
    if (t > 0) {
      AlignedDoubles gram(t * t, 0.0);
      double trace = 0.0;
      for (Index j = 0; j < t; ++j) {
        const std::vector<double>& with = gram_[j];
        for (Index i = 0; i <= j; ++i) {
          gram[i * t + j] = with[i];
        }
        trace += with.back();
      }
      const auto factor = Cholesky::of({gram.data(), t, t}, rule_.ridge * trace / t);
      if (!factor) fail_singular_fit();
      weights_ = moments_;
      factor->solve({weights_.data(), t, 1});
      for (double& w : weights_) w = std::clamp(w, rule_.lowest, rule_.highest);
    }
    set_residual();
  }

  void set_residual() {
    residual_ = target_;
    for (std::size_t i = 0; i < chosen_.size(); ++i) {
      const double* e = column(chosen_[i]);
      for (std::size_t r = 0; r < residual_.size(); ++r) {
        residual_[r] = std::fma(-weights_[i], e[r], residual_[r]);
      }
    }
  }

  const PursuitRule& rule_;
  const std::vector<double>& target_;  // y
  const Index tokens_;
  const Index references_;
  const AlignedDoubles& e_;       // E, [tokens, references]
  std::vector<double> residual_;  // y - M w
  std::vector<char> taken_;       // chosen, or dropped
  std::vector<double> correlation_;
  std::vector<Index> chosen_;
  std::vector<std::vector<double>> gram_;  // products of each chosen one with those up to it
  std::vector<double> moments_;
  std::vector<double> weights_;
};

}  // namespace

ReferenceExponentials reference_exponentials(const References& references,
                                             const StreamShape& shape) {
  return {references, 8.0 * (references.rows() * shape.heads_per_kv) * references.tokens()};
}

AlignedDoubles ReferenceExponentials::compute(const SharedContext& context) const {
  const Index tokens = references.tokens();
  std::vector<std::int32_t> all(tokens);
  std::iota(all.begin(), all.end(), static_cast<std::int32_t>(references.first_token));
  const ReferenceLogits logits(context.stream, references, std::move(all));
  const Index count = logits.count();
  AlignedDoubles out(tokens * count);
  parallel_for((count + kReferencesOfTask - 1) / kReferencesOfTask, [&](Index task) {
    const Index first = task * kReferencesOfTask;
    const Index last = std::min(count, first + kReferencesOfTask);
    AlignedDoubles x(kReferencesOfTask * logits.stride());
    logits.block(first, last, x.data());
    for (Index q = first; q < last; ++q) {
      double* row = x.data() + (q - first) * logits.stride();
      exponentiate(row, tokens);
      for (Index j = 0; j < tokens; ++j) out[j * count + q] = row[j];
    }
  });
  return out;
}

PursuedTokens pursue(const AlignedDoubles& exponentials, const std::vector<double>& sums,
                     const References& references, Index count, const PursuitRule& rule) {
  Pursuit pursuit(exponentials, sums, references.tokens(), rule);
  pursuit.choose(count);
  for (int round = 0; round < kDropRounds && pursuit.drop(); ++round) pursuit.choose(count);
  return pursuit.result(references.first_token);
}

double pursuit_bytes(Index tokens, Index count) {
  const double t = count;
  return 20.0 * t * t + 64.0 * t + 16.0 * tokens;
}

}  // namespace kvbench
