// Properties of one stream's tensors, whatever algorithm may run on it: the quantities that the
// theorems' bounds are made of and that the papers' descriptive figures show.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"

namespace kvbench {

struct InspectionOptions {
  Index attention_rows = 256;      // at most this many of the last stored query rows
  Index clustering_tokens = 8192;  // at most this many of the first tokens are clustered
  Index centers = 1024;            // at most this many farthest-first centres
  // Quantiles of pairwise distances that give the radii delta of the m'(delta) curves.
  std::vector<double> delta_quantiles = {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5};
};

// l2 norms of the rows of a matrix.
struct NormSummary {
  static constexpr int kQuantiles = 11;
  // min, 1, 5, 10, 25, 50, 75, 90, 95, 99 %, max
  static const double kLevels[kQuantiles];

  Index count = 0;
  double mean = 0.0;
  double rms = 0.0;  // sqrt(mean of squares)
  double quantiles[kQuantiles] = {};

  double median() const { return quantiles[5]; }
  double max() const { return quantiles[kQuantiles - 1]; }
};

// The delta-net of SubGen Alg. 1 at one radius.
struct ClusterPoint {
  double delta_quantile = 0.0;
  double delta = 0.0;  // l2 distance; the quantile over all tokens of the stream
  Index clusters = 0;  // m'
  // (first tokens, their m'), prefixes of 2^i tokens, i >= 0, and the whole.
  std::vector<std::pair<Index, Index>> growth;
};

// One set of points: the keys or the values of a stream.
struct PointSet {
  NormSummary norms;
  double frobenius_norm = 0.0;
  double spectral_norm = 0.0;
  std::optional<double> stable_rank;  // squared ratio of the two; none for a zero matrix
  std::vector<ClusterPoint> clusters;
  // Farthest-first from the oldest token.
  std::vector<Index> centers;                             // the first (at most) 64 centres
  std::vector<std::pair<Index, double>> covering_radius;  // (k, radius), k every to 16, then spread
};

// A threshold on attention probabilities and the part of visible tokens at or below it.
struct SparsityPoint {
  double threshold = 0.0;
  double fraction = 0.0;
};

// Means over rows (or over rows and query heads); n_i = visible tokens of row i.
struct AttentionSummary {
  static constexpr int kTopLevels = 12;
  static const int kTopPercent[kTopLevels];  // 1, 2, 5, 10, 20, .. 90

  double largest_logit = 0.0;  // max over rows and tokens, not a mean
  double entropy_nats = 0.0;   // entropy of the softmax
  double zero_in_fp16 = 0.0;   // fraction with p <= 2^-25: rounds to zero in half precision
  std::vector<SparsityPoint> absolute;  // p <= threshold
  std::vector<SparsityPoint> relative;  // p <= threshold * largest p of the row
  // Mass of the top ceil(x n_i / 100) tokens of a row.
  std::vector<double> top_mass;              // ranked in each row by its own probabilities
  std::vector<double> top_mass_accumulated;  // ranked once by the sum of p over the rows looked at
};

struct StreamInspection {
  NormSummary queries;  // all stored rows of the group, as stored; count 0 if none is stored
  PointSet keys;
  PointSet values;
  double r = 0.0;                 // max ||scale q|| over all stored rows of the group
  double r_attention_rows = 0.0;  // the same over the rows of `attention`
  double r_balancekv = 0.0;       // max norm over keys and stored queries
  Index clustering_tokens = 0;
  Index attention_first_row = 0;
  Index attention_rows = 0;
  // None if no query is stored or if logits overflow (`attention_overflow`).
  std::optional<AttentionSummary> attention;      // over the group
  std::vector<AttentionSummary> attention_heads;  // G
  bool attention_overflow = false;
};

// Holds O(n (d + dv)) numbers besides the stream. Deterministic for any number of threads.
StreamInspection inspect_stream(const Stream& stream, const Kernels& kernels,
                                const InspectionOptions& options);

}  // namespace kvbench
