// qfilters: tokens whose keys point most along the main direction of the queries, which is one
// vector per KV head, calibrated on the prompt's queries.
//
// Source: Q-Filters (Godey et al., arXiv 2503.02812; make_filters.py at cda5c38) and kvpress
// 8bb29b9, qfilter_press.py.
//   first right singular vector of the queries -> filter, the mean over the group's query heads
// Departures: calibrated on all queries of the visible prompt as the dump has them, where the code
// samples 3000 of a data set; kvpress reads filters that were made so, and so was not compared. If
// as many queries project positively as negatively, the sum of projections gives the sign. If the
// two largest singular values are within 1e-9 of each other, the main direction is undefined, and
// the cell fails.
// Compared on the shipped dump, once: tokens ranked in numpy by the singular vectors that its svd
// gives of the same queries have the mean errors of `semantics: once` to 14 digits (9 heads, budget
// 256).
#include <algorithm>
#include <cmath>
#include <utility>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "numerics/symmetric_eigen.hpp"
#include "system/error.hpp"

namespace kvbench::methods::qfilters {
namespace {

constexpr double kMinGap = 1e-9;  // gap of the two largest singular values, relative

// sum of q q^T over rows, [d * d].
std::vector<double> gram(const Stream& stream, int g, PromptRange rows) {
  const Index d = stream.shape.d;
  std::vector<double> out(d * d, 0.0);
  const MutableMatrix squares(out.data(), d, d);
  const ConstMatrix& all = stream.queries[g];
  add_gram({stream.query(g, rows.first), rows.size(), d, all.stride}, squares);
  mirror_upper(squares);
  return out;
}

// Whether most queries project negatively on a direction.
bool points_away(const Stream& stream, int g, PromptRange rows, const std::vector<double>& f) {
  Index balance = 0;  // positive less negative ones
  double sum = 0.0;
  for (Index row = rows.first; row < rows.last; ++row) {
    const double projection = canonical_dot(stream.query(g, row), f.data(), stream.shape.d);
    balance += projection > 0.0 ? 1 : projection < 0.0 ? -1 : 0;
    sum += projection;
  }
  return balance != 0 ? balance < 0 : sum < 0.0;
}

// Shared work: the filter of the KV head.
struct QueryFilter {
  using Result = std::vector<double>;  // [d]
  Result compute(const SharedContext& context) const {
    const Stream& stream = context.stream;
    const PromptRange rows = visible_prompt(stream.shape, context.prompt);
    Result filter(static_cast<std::size_t>(stream.shape.d), 0.0);
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      const std::vector<double> f = direction(stream, g, rows);
      const double sign = points_away(stream, g, rows, f) ? -1.0 : 1.0;
      for (std::size_t k = 0; k < filter.size(); ++k) filter[k] += sign * f[k];
    }
    for (double& x : filter) x /= stream.shape.heads_per_kv;
    return filter;
  }
  auto operator<=>(const QueryFilter&) const = default;

 private:
  static std::vector<double> direction(const Stream& stream, int g, PromptRange rows) {
    const std::vector<double> squares = gram(stream, g, rows);
    for (const double x : squares) {
      if (!std::isfinite(x)) throw CellError("products of prompt queries overflow");
    }
    SymmetricEigen eigen = symmetric_eigen(squares, stream.shape.d);
    const auto singular = [&](std::size_t k) {
      return k < eigen.values.size() ? std::sqrt(std::max(eigen.values[k], 0.0)) : 0.0;
    };
    if (!(singular(0) - singular(1) > kMinGap * singular(0))) {
      throw CellError(
          "the queries of the prompt have no main direction: their two largest "
          "singular values are equal, or all are 0");
    }
    return std::move(eigen.vectors.front());
  }
};

std::optional<std::string> cannot_filter(const TimedRankingParameters& p, const StreamShape& shape,
                                         Index prompt) {
  if (auto reason = cannot_rank_in_time(p, shape, prompt)) return reason;
  if (!p.streams() && keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::nullopt;
  const PromptRange rows = visible_prompt(shape, prompt);
  if (rows.size() == 0) return "the filter is calibrated on queries of the prompt, which has none";
  return lacks_prompt_queries(rows.first, shape, prompt);
}

std::unique_ptr<Algorithm> create(const TimedRankingParameters& p, const CellContext& context) {
  const auto score = [context, filter = static_cast<const double*>(nullptr)](Index token) mutable {
    if (filter == nullptr) filter = context.shared.get(QueryFilter{}).data();
    return canonical_dot(context.stream.keys.row(token), filter, context.stream.shape.d);
  };
  return ranked(p, context, score);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<TimedRankingParameters> d;
  d.id = "qfilters";
  d.title = "tokens whose keys point along the main direction of the prompt's queries";
  d.source = "Q-Filters (Godey et al.)";
  d.derived = RankedPrompt::derived_keys();
  d.parameters.add(ranking_fields());
  d.parameters.add({ranking_time_field()});
  d.skip_reason = cannot_filter;
  d.shared_work = [](const TimedRankingParameters& p, const StreamShape& shape, Index prompt,
                     std::uint32_t) {
    const bool is_whole = keeps_whole_prompt(p.budget.of(prompt), shape, prompt);
    if (is_whole && !p.streams()) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{QueryFilter{}};
  };
  d.most_kept = most_kept_ranked;
  d.only_appends = [](const TimedRankingParameters& p) { return !p.streams(); };
  d.create = create;
  return d;
}

}  // namespace kvbench::methods::qfilters
