// The group rule: scores are kept per query head and combined per KV head whenever tokens are
// ranked, so that one set is kept per KV head.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "numerics/matrix_view.hpp"
#include "parameters/parameter_table.hpp"
#include "system/error.hpp"

namespace kvbench {

enum class GroupRule { kMean, kMax, kSum };

UntypedField group_choices();

template <class P>
Field<P> group_field(GroupRule P::* member) {
  return field_at(member, group_choices());
}

// `score(g)` for g in [0, group), combined in the order of g.
template <class Score>
double combine(GroupRule rule, int heads_per_kv, const Score& score) {
  double total = score(0);
  for (int g = 1; g < heads_per_kv; ++g) {
    total = rule == GroupRule::kMax ? std::max(total, score(g)) : total + score(g);
  }
  return rule == GroupRule::kMean ? total / heads_per_kv : total;
}

// The same for places [0, count) of scores[g]: out[p].
inline void combine(GroupRule rule, const std::vector<std::vector<double>>& scores,
                    std::size_t count, std::vector<double>& out) {
  out.assign(scores.front().begin(), scores.front().begin() + static_cast<Index>(count));
  for (std::size_t g = 1; g < scores.size(); ++g) {
    const double* more = scores[g].data();
    for (std::size_t p = 0; p < count; ++p) {
      out[p] = rule == GroupRule::kMax ? std::max(out[p], more[p]) : out[p] + more[p];
    }
  }
  if (rule != GroupRule::kMean || scores.size() == 1) return;
  for (double& value : out) value /= static_cast<double>(scores.size());
}

// Throws CellError if a score is not a number.
inline void check_ranked(double score) {
  if (std::isnan(score)) throw CellError("scores of tokens overflow");
}
inline void check_ranked(const std::vector<double>& scores) {
  for (const double score : scores) check_ranked(score);
}

// The `count` best of tokens [first, first + scores.size()), ascending by token. Higher score
// first, of equals the lower token. Throws CellError if a score is not a number.
inline std::vector<Index> best_tokens(const std::vector<double>& scores, Index first, Index count) {
  check_ranked(scores);
  std::vector<Index> best;
  const auto size = std::ssize(scores);
  count = std::clamp<Index>(count, 0, size);
  if (count == 0) return best;
  std::vector<double> ranked = scores;
  const auto last = ranked.begin() + (count - 1);
  std::nth_element(ranked.begin(), last, ranked.end(), std::greater<>());
  const double least = *last;
  Index of_the_least =
      count - std::count_if(ranked.begin(), last, [&](double score) { return score > least; });
  best.reserve(count);
  for (Index i = 0; i < size; ++i) {
    const double score = scores[i];
    if (score > least || (score == least && of_the_least-- > 0)) best.push_back(first + i);
  }
  return best;
}

}  // namespace kvbench
