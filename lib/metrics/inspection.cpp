#include "metrics/inspection.hpp"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/distance_quantile.hpp"
#include "kernels/top_eigenvalue.hpp"
#include "numerics/quantile.hpp"
#include "system/parallel.hpp"

namespace kvbench {

const double NormSummary::kLevels[kQuantiles] = {0.0,  0.01, 0.05, 0.1,  0.25, 0.5,
                                                 0.75, 0.9,  0.95, 0.99, 1.0};
const int AttentionSummary::kTopPercent[kTopLevels] = {1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90};

namespace {

constexpr double kAbsoluteThresholds[] = {1e-6, 1e-5, 1e-4, 1e-3};
constexpr double kRelativeThresholds[] = {1e-3, 1e-2, 5e-2};
constexpr double kZeroInFp16 = 0x1p-25;  // half of the least subnormal; ties go to even, zero
constexpr std::size_t kAbsoluteCount = std::size(kAbsoluteThresholds);
constexpr std::size_t kRelativeCount = std::size(kRelativeThresholds);
constexpr Index kListedCenters = 64;
constexpr Index kBlockLogits = Index{1} << 22;  // elements of a logit block

// No overflow for any finite row.
double norm_of(const double* x, Index d) {
  double largest = 0.0;
  for (Index k = 0; k < d; ++k) largest = std::max(largest, std::fabs(x[k]));
  if (largest == 0.0) return 0.0;
  double sum = 0.0;
  for (Index k = 0; k < d; ++k) sum += (x[k] / largest) * (x[k] / largest);
  return largest * std::sqrt(sum);
}

void append_norms(ConstMatrix rows, std::vector<double>& norms) {
  for (Index i = 0; i < rows.rows; ++i) norms.push_back(norm_of(rows.row(i), rows.cols));
}

NormSummary summarize(std::vector<double> norms) {
  NormSummary out;
  out.count = std::ssize(norms);
  if (norms.empty()) return out;
  std::sort(norms.begin(), norms.end());
  for (int k = 0; k < NormSummary::kQuantiles; ++k) {
    out.quantiles[k] = sorted_quantile(norms, NormSummary::kLevels[k]);
  }
  const double count = norms.size();
  for (const double x : norms) out.mean += x / count;
  out.rms = norm_of(norms.data(), out.count) / std::sqrt(count);
  return out;
}

// Frobenius and spectral norm from the Gram matrix, scaled so that it cannot overflow.
void matrix_norms(ConstMatrix rows, PointSet& out) {
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>> matrix(
      rows.data, rows.rows, rows.cols, Eigen::OuterStride<>(rows.stride));
  const double largest = rows.rows == 0 ? 0.0 : matrix.cwiseAbs().maxCoeff();
  if (largest == 0.0) return;
  constexpr Index kBlock = 1024;
  Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(rows.cols, rows.cols);
  for (Index first = 0; first < rows.rows; first += kBlock) {
    const RowMajor block = matrix.middleRows(first, std::min(kBlock, rows.rows - first)) / largest;
    gram.noalias() += block.transpose() * block;
  }
  const double top = solved_top_eigenvalue({gram.data(), gram.rows(), gram.cols()});
  out.frobenius_norm = largest * std::sqrt(gram.trace());
  out.spectral_norm = largest * std::sqrt(top);
  out.stable_rank = gram.trace() / top;
}

ClusterPoint cluster_point(ConstMatrix all, ConstMatrix clustered, double quantile,
                           const Kernels& kernels) {
  ClusterPoint out;
  out.delta_quantile = quantile;
  out.delta = distance_quantile(all, quantile);
  const Clustering clustering = kernels.cluster(clustered, 0, out.delta);
  const auto& opened = clustering.opened_by;  // ascending
  out.clusters = std::ssize(opened);
  for (Index prefix = 1; prefix < 2 * clustered.rows; prefix *= 2) {
    const Index tokens = std::min(prefix, clustered.rows);
    const auto end = std::lower_bound(opened.begin(), opened.end(), tokens);
    out.growth.emplace_back(tokens, end - opened.begin());
  }
  return out;
}

PointSet inspect_points(ConstMatrix points, Index clustering_tokens, const Kernels& kernels,
                        const InspectionOptions& options) {
  PointSet out;
  std::vector<double> norms;
  append_norms(points, norms);
  out.norms = summarize(std::move(norms));
  matrix_norms(points, out);

  const ConstMatrix clustered(points.data, clustering_tokens, points.cols, points.stride);
  for (const double quantile : options.delta_quantiles) {
    out.clusters.push_back(cluster_point(points, clustered, quantile, kernels));
  }
  const Index count = std::min(options.centers, clustering_tokens);
  if (count <= 0) return out;
  const Centers centers = kernels.farthest_first(clustered, 0, clustering_tokens, 0, count);
  const std::size_t listed = std::min(count, kListedCenters);
  out.centers.assign(centers.tokens.begin(), centers.tokens.begin() + listed);
  for (Index k = 1;;) {
    out.covering_radius.emplace_back(k, centers.radius[k - 1]);
    if (k == count) break;
    k = std::min(count, k < 16 ? k + 1 : k + k / 8);
  }
  return out;
}

Index top_count(int percent, Index visible) { return (percent * visible + 99) / 100; }

// Mass of the leading top_count() entries of `exps`, which must be in the order of the ranking.
void add_top_mass(std::span<const double> exps, double normalizer, std::vector<double>& mass) {
  const Index visible = std::ssize(exps);
  double sum = 0.0;
  Index taken = 0;
  for (std::size_t level = 0; level < mass.size(); ++level) {
    const Index wanted = top_count(AttentionSummary::kTopPercent[level], visible);
    for (; taken < wanted; ++taken) sum += exps[taken];
    mass[level] += sum / normalizer;
  }
}

AttentionSummary empty_summary() {
  AttentionSummary out;
  out.largest_logit = -std::numeric_limits<double>::infinity();
  for (const double threshold : kAbsoluteThresholds) out.absolute.push_back({threshold, 0.0});
  for (const double threshold : kRelativeThresholds) out.relative.push_back({threshold, 0.0});
  out.top_mass.assign(AttentionSummary::kTopLevels, 0.0);
  out.top_mass_accumulated.assign(AttentionSummary::kTopLevels, 0.0);
  return out;
}

// into += weight * row, and the larger of the largest logits.
void add(const AttentionSummary& row, double weight, AttentionSummary& into) {
  into.largest_logit = std::max(into.largest_logit, row.largest_logit);
  into.entropy_nats += weight * row.entropy_nats;
  into.zero_in_fp16 += weight * row.zero_in_fp16;
  for (std::size_t k = 0; k < kAbsoluteCount; ++k) {
    into.absolute[k].fraction += weight * row.absolute[k].fraction;
  }
  for (std::size_t k = 0; k < kRelativeCount; ++k) {
    into.relative[k].fraction += weight * row.relative[k].fraction;
  }
  for (std::size_t k = 0; k < row.top_mass.size(); ++k) {
    into.top_mass[k] += weight * row.top_mass[k];
    into.top_mass_accumulated[k] += weight * row.top_mass_accumulated[k];
  }
}

// One row of one query head. `logits` and `exps` = exp(logit - max_logit) are indexed by token;
// `ranking` holds all tokens in the order of their accumulated scores. A sink is an outcome of the
// row's distribution, and no token.
AttentionSummary summarize_row(const double* logits, const double* exps, double max_logit,
                               double sink, Index lo, Index end,
                               const std::vector<Index>& ranking) {
  AttentionSummary out = empty_summary();
  out.largest_logit = max_logit;
  const double visible = end - lo;
  double normalizer = 0.0;
  double weighted = 0.0;
  for (Index j = lo; j < end; ++j) {
    normalizer += exps[j];
    if (exps[j] > 0.0) weighted += exps[j] * (logits[j] - max_logit);
  }
  if (std::isfinite(sink)) {
    const double e = std::exp(sink - max_logit);
    normalizer += e;
    weighted += e * (sink - max_logit);
  }
  out.entropy_nats = std::log(normalizer) - weighted / normalizer;

  Index zero = 0;
  Index absolute[kAbsoluteCount] = {};
  Index relative[kRelativeCount] = {};
  for (Index j = lo; j < end; ++j) {
    const double p = exps[j] / normalizer;
    zero += p <= kZeroInFp16 ? 1 : 0;
    for (std::size_t k = 0; k < kAbsoluteCount; ++k) absolute[k] += p <= kAbsoluteThresholds[k];
    for (std::size_t k = 0; k < kRelativeCount; ++k) {
      relative[k] += exps[j] <= kRelativeThresholds[k];  // the row's largest is 1
    }
  }
  out.zero_in_fp16 = zero / visible;
  for (std::size_t k = 0; k < kAbsoluteCount; ++k) {
    out.absolute[k].fraction = absolute[k] / visible;
  }
  for (std::size_t k = 0; k < kRelativeCount; ++k) {
    out.relative[k].fraction = relative[k] / visible;
  }

  std::vector<double> ordered;
  ordered.reserve(end - lo);
  for (const Index j : ranking) {
    if (j >= lo && j < end) ordered.push_back(exps[j]);
  }
  add_top_mass(ordered, normalizer, out.top_mass_accumulated);
  std::sort(ordered.begin(), ordered.end(), std::greater<>());
  add_top_mass(ordered, normalizer, out.top_mass);
  return out;
}

void inspect_attention(const Stream& stream, const Kernels& kernels, StreamInspection& out) {
  const Index n = stream.shape.tokens;
  const Index heads_per_kv = stream.shape.heads_per_kv;
  const Index first = out.attention_first_row;
  const Index rows = out.attention_rows;
  if (rows == 0) return;

  std::vector<std::vector<Index>> rankings;
  for (const std::vector<double>& scores : kernels.score_sums(stream, first, n)) {
    if (!std::all_of(scores.begin(), scores.end(), [](double f) { return std::isfinite(f); })) {
      out.attention_overflow = true;
      return;
    }
    std::vector<Index>& ranking = rankings.emplace_back(scores.size());
    std::iota(ranking.begin(), ranking.end(), Index{0});
    std::stable_sort(ranking.begin(), ranking.end(),
                     [&](Index a, Index b) { return scores[a] > scores[b]; });
  }

  std::vector<AttentionSummary> heads(heads_per_kv, empty_summary());
  AttentionSummary all = empty_summary();
  const Index block_rows = std::clamp<Index>(kBlockLogits / (heads_per_kv * n), 1, rows);
  LogitBlock block;
  for (Index begin = first; begin < n; begin += block_rows) {
    const Index end = std::min(begin + block_rows, n);
    std::vector<Index> block_tokens(end - begin);
    std::iota(block_tokens.begin(), block_tokens.end(), begin);
    kernels.logits(stream, std::move(block_tokens), block);
    const Index query_count = (end - begin) * heads_per_kv;
    std::vector<AttentionSummary> summaries(query_count);
    parallel_for(query_count, [&](Index query_index) {
      const Index row = begin + query_index / heads_per_kv;
      const Index offset = query_index * block.tokens;
      summaries[query_index] = summarize_row(
          block.logits.data() + offset, block.exps.data() + offset, block.max_logit[query_index],
          stream.sink(static_cast<int>(query_index % heads_per_kv)),
          stream.shape.first_visible(row), stream.shape.visible_end(row),
          rankings[query_index % heads_per_kv]);
    });
    for (Index query_index = 0; query_index < query_count; ++query_index) {
      const AttentionSummary& row = summaries[query_index];
      if (!std::isfinite(row.largest_logit) || !std::isfinite(row.entropy_nats)) {
        out.attention_overflow = true;
        return;
      }
      add(row, 1.0 / rows, heads[query_index % heads_per_kv]);
    }
  }
  for (const AttentionSummary& head : heads) add(head, 1.0 / heads_per_kv, all);
  out.attention_heads = std::move(heads);
  out.attention = std::move(all);
}

}  // namespace

StreamInspection inspect_stream(const Stream& stream, const Kernels& kernels,
                                const InspectionOptions& options) {
  const StreamShape& shape = stream.shape;
  StreamInspection out;
  out.clustering_tokens = std::min(options.clustering_tokens, shape.tokens);
  out.keys = inspect_points(stream.keys, out.clustering_tokens, kernels, options);
  out.values = inspect_points(stream.values, out.clustering_tokens, kernels, options);

  out.attention_rows = std::min(options.attention_rows, shape.tokens - shape.first_query);
  out.attention_first_row = shape.tokens - out.attention_rows;
  std::vector<double> norms;
  double largest_of_rows = 0.0;
  for (const ConstMatrix& queries : stream.queries) {
    const std::size_t before = norms.size();
    append_norms(queries, norms);
    const std::size_t skipped = queries.rows - out.attention_rows;
    for (std::size_t i = before + skipped; i < norms.size(); ++i) {
      largest_of_rows = std::max(largest_of_rows, norms[i]);
    }
  }
  out.queries = summarize(std::move(norms));
  out.r = std::fabs(shape.scale) * out.queries.max();
  out.r_attention_rows = std::fabs(shape.scale) * largest_of_rows;
  out.r_balancekv = std::max(out.keys.norms.max(), out.queries.max());
  inspect_attention(stream, kernels, out);
  return out;
}

}  // namespace kvbench
