// qfilters: tokens whose keys point most along the main direction of the queries. That is one
// vector per KV head, calibrated on the prompt's queries or on those of other texts.
//
// Source: Q-Filters (Godey et al., arXiv 2503.02812; make_filters.py at cda5c38) and kvpress
// 8bb29b9, qfilter_press.py.
//   first right singular vector of the queries -> filter, the mean over the group's query heads
// Departures: calibrated on all queries of the visible prompt, or of each text of a calibration
// file (array `filter`), where the code samples 3000 of a data set; kvpress reads filters that were
// made so, and so was not compared. If as many queries project positively as negatively, the sum of
// projections gives the sign. If the two largest singular values are within 1e-9 of each other, the
// main direction is undefined, and the cell fails. Compared on the shipped dump, once: tokens
// ranked in numpy by the singular vectors that its svd gives of the same queries have the mean
// errors of `semantics: once` to 14 digits (9 heads, budget 256).
#include <algorithm>
#include <cmath>
#include <utility>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "numerics/symmetric_eigen.hpp"
#include "parameters/calibrated.hpp"
#include "system/error.hpp"

namespace kvbench::methods::qfilters {
namespace {

constexpr double kMinGap = 1e-9;  // gap of the two largest singular values, relative

struct Parameters : TimedRankingParameters {
  OptionalCalibration calibration;
};

using Vector = std::vector<double>;

std::optional<std::string> lacks_rows(const StreamShape& shape, Index prompt) {
  const PromptRange rows = visible_prompt(shape, prompt);
  if (rows.size() == 0) return "the filter is calibrated on queries of the prompt, which has none";
  return lacks_prompt_queries(rows.first, shape, prompt);
}

// By query head: sum of q q^T over the texts' visible rows, [d * d].
std::vector<Vector> grams(const CalibrationTexts& texts) {
  const Index d = texts.d;
  std::vector<Vector> out(texts.heads_per_kv, Vector(d * d, 0.0));
  texts.for_each([&](const Stream& stream, Index prompt) {
    require_none(lacks_rows(stream.shape, prompt));
    const PromptRange rows = visible_prompt(stream.shape, prompt);
    for (std::size_t g = 0; g < out.size(); ++g) {
      const double* first = stream.query(static_cast<int>(g), rows.first);
      add_gram({first, rows.size(), d, stream.queries[g].stride}, {out[g].data(), d, d});
    }
  });
  for (Vector& gram : out) mirror_upper({gram.data(), d, d});
  return out;
}

Vector direction(const Vector& gram, Index d) {
  for (const double x : gram) {
    if (!std::isfinite(x)) throw CellError("products of prompt queries overflow");
  }
  SymmetricEigen eigen = symmetric_eigen(gram, d);
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

// By query head: whether most queries project negatively on its direction.
std::vector<bool> points_away(const CalibrationTexts& texts, const std::vector<Vector>& f) {
  std::vector<Index> balance(f.size(), 0);  // positive less negative ones
  Vector sum(f.size(), 0.0);
  texts.for_each([&](const Stream& stream, Index prompt) {
    const PromptRange rows = visible_prompt(stream.shape, prompt);
    for (std::size_t g = 0; g < f.size(); ++g) {
      for (Index row = rows.first; row < rows.last; ++row) {
        const double* query = stream.query(static_cast<int>(g), row);
        const double projection = canonical_dot(query, f[g].data(), texts.d);
        balance[g] += projection > 0.0 ? 1 : projection < 0.0 ? -1 : 0;
        sum[g] += projection;
      }
    }
  });
  std::vector<bool> out;
  for (std::size_t g = 0; g < f.size(); ++g) {
    out.push_back(balance[g] != 0 ? balance[g] < 0 : sum[g] < 0.0);
  }
  return out;
}

// The filter of a KV head, [d].
Vector filter_of(const CalibrationTexts& texts) {
  std::vector<Vector> directions;
  for (const Vector& gram : grams(texts)) directions.push_back(direction(gram, texts.d));
  const std::vector<bool> away = points_away(texts, directions);
  Vector filter(texts.d, 0.0);
  for (std::size_t g = 0; g < directions.size(); ++g) {
    const double sign = away[g] ? -1.0 : 1.0;
    for (std::size_t k = 0; k < filter.size(); ++k) filter[k] += sign * directions[g][k];
  }
  for (double& x : filter) x /= texts.heads_per_kv;
  return filter;
}

// Shared work: the filter of the KV head.
struct QueryFilter {
  OptionalCalibration calibration;

  using Result = Vector;
  Result compute(const SharedContext& context) const {
    const Stream& stream = context.stream;
    if (calibration) return calibrated(*calibration, stream, "filter", {stream.shape.d});
    return filter_of(one_text(stream, context.prompt));
  }
  auto operator<=>(const QueryFilter&) const = default;
};

std::optional<std::string> cannot_filter(const Parameters& p, const StreamShape& shape,
                                         Index prompt) {
  if (auto reason = cannot_rank_in_time(p, shape, prompt)) return reason;
  if (!p.streams() && keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::nullopt;
  return p.calibration ? std::nullopt : lacks_rows(shape, prompt);
}

std::unique_ptr<Algorithm> create(const Parameters& p, const CellContext& context) {
  const auto score = [context, work = QueryFilter{p.calibration},
                      filter = static_cast<const double*>(nullptr)](Index token) mutable {
    if (filter == nullptr) filter = context.shared.get(work).data();
    return canonical_dot(context.stream.keys.row(token), filter, context.stream.shape.d);
  };
  return ranked(p, context, score);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "qfilters";
  d.title = "tokens whose keys point along the main direction of the prompt's queries";
  d.source = "Q-Filters (Godey et al.)";
  d.derived = RankedPrompt::derived_keys();
  d.parameters.add(ranking_fields());
  d.parameters.add({ranking_time_field(), calibration_field(&Parameters::calibration)});
  d.skip_reason = cannot_filter;
  d.shared_work = [](const Parameters& p, const StreamShape& shape, Index prompt, std::uint32_t) {
    const bool is_whole = keeps_whole_prompt(p.budget.of(prompt), shape, prompt);
    if (is_whole && !p.streams()) return std::vector<SharedWork>{};
    return std::vector<SharedWork>{QueryFilter{p.calibration}};
  };
  d.most_kept = most_kept_ranked;
  d.ranks = ranked_parts;
  d.only_appends = [](const Parameters& p) { return !p.streams(); };
  d.calibrate = [](const Parameters&, const CalibrationTexts& texts) {
    return CalibratedNumbers{{"filter", {{texts.d}, filter_of(texts)}}};
  };
  d.create = create;
  return d;
}

}  // namespace kvbench::methods::qfilters
