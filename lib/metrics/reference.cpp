#include "metrics/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/top_eigenvalue.hpp"
#include "numerics/norm.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

double largest_size(const double* x, Index count) {
  double largest = 0.0;
  for (Index k = 0; k < count; ++k) largest = std::max(largest, std::abs(x[k]));
  return largest;
}

[[noreturn]] void fail_overflow(Index row, Index g) {
  throw CellError("logits overflow at row " + std::to_string(row) + ", query head " +
                  std::to_string(g) + " of the group");
}

// A finite logit may have partial sums that are infinite, and which ones differs by the order of a
// kernel. Kernels scale the query or its products: throws where either may exceed the doubles.
void check_partial_sums(const Stream& stream, const std::vector<Index>& rows) {
  constexpr double kMaxMagnitude =
      0.999 * std::numeric_limits<double>::max();  // beyond any rounding
  const StreamShape& shape = stream.shape;
  const double wide = std::max(1.0, std::abs(shape.scale));
  double key = 1.0;
  for (Index j = 0; j < shape.tokens; ++j) {
    key = std::max(key, largest_size(stream.keys.row(j), shape.d));
  }
  for (const Index row : rows) {
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      const double* query = stream.query(g, row);
      const double size = wide * largest_size(query, shape.d);
      if (size <= kMaxMagnitude / key / shape.d) continue;
      if (size > kMaxMagnitude) fail_overflow(row, g);
      for (Index j = shape.first_visible(row); j < shape.visible_end(row); ++j) {
        double sum = 0.0;
        for (Index k = 0; k < shape.d; ++k) {
          sum += wide * std::abs(query[k]) * std::abs(stream.keys(j, k));
        }
        if (sum > kMaxMagnitude) fail_overflow(row, g);
      }
    }
  }
}

// Roots of the sums of squares, summed anew where a high sink leaves no digits to the squares.
std::vector<double> exponential_norms(const Kernels& kernels, const Stream& stream,
                                      const ExactRows& exact) {
  const Index heads_per_kv = stream.shape.heads_per_kv;
  std::vector<double> norms;
  for (const double squares : exact.squared_sum) {
    const Index query_index = std::ssize(norms);
    norms.push_back(std::sqrt(squares));
    if (NormSum::is_safe(squares)) continue;
    const Index row = exact.rows[query_index / heads_per_kv];
    LogitBlock block;
    kernels.logits(stream, {row}, block);
    const double* exps = block.exps.data() + query_index % heads_per_kv * block.tokens;
    NormSum sum;
    for (Index j = stream.shape.first_visible(row); j < stream.shape.visible_end(row); ++j) {
      sum.add(exps[j]);
    }
    norms.back() = sum.value();
  }
  return norms;
}

// A sink some 670 above all logits leaves exponentials of the tokens without their digits, or 0: no
// error could be told from none. Sums of squares vanish earlier.
void check_sinks(const Stream& stream, const Reference& reference) {
  constexpr double kMinShare = 1e-290;  // an answer over its values
  if (!stream.shape.sinks) return;
  const ExactRows& exact = reference.exact;
  const std::size_t heads_per_kv = stream.shape.heads_per_kv;
  for (std::size_t query_index = 0; query_index < exact.squared_sum.size(); ++query_index) {
    if (exact.squared_sum[query_index] > 0.0) continue;
    const std::size_t r = query_index / heads_per_kv;
    const double* a = exact.outputs.data() + static_cast<Index>(query_index) * stream.shape.dv;
    const double values = reference.value_frobenius[r];
    if (values == 0.0 || largest_size(a, stream.shape.dv) > kMinShare * values) continue;
    throw CellError("the sink of query head " + std::to_string(query_index % heads_per_kv) +
                    " of the group is so far above the logits at row " +
                    std::to_string(exact.rows[r]) +
                    " that the exact answer underflows; check the sink and the scale");
  }
}

}  // namespace

double spectral_norm(ConstMatrix stack) {
  double largest = 0.0;
  for (Index i = 0; i < stack.rows; ++i) {
    for (Index k = 0; k < stack.cols; ++k) largest = std::max(largest, std::abs(stack(i, k)));
  }
  if (!(largest > 0.0) || !std::isfinite(largest)) return largest;
  return largest * std::sqrt(scaled_top_eigenvalue(stack, largest));
}

Reference make_reference(const Kernels& kernels, const Stream& stream, std::vector<Index> rows) {
  check_partial_sums(stream, rows);
  Reference reference;
  reference.exact = kernels.exact_attention(stream, std::move(rows));
  const ExactRows& exact = reference.exact;
  const std::size_t heads_per_kv = stream.shape.heads_per_kv;
  for (std::size_t query_index = 0; query_index < exact.max_logit.size(); ++query_index) {
    if (!std::isfinite(exact.max_logit[query_index]) ||
        !std::isfinite(exact.normalizer[query_index])) {
      fail_overflow(exact.rows[query_index / heads_per_kv], query_index % heads_per_kv);
    }
  }
  kernels.value_norms(stream, exact.rows, reference.value_spectral, reference.value_frobenius);
  for (std::size_t r = 0; r < exact.rows.size(); ++r) {
    if (!std::isfinite(reference.value_frobenius[r])) {
      throw CellError("norms of the values overflow at row " + std::to_string(exact.rows[r]));
    }
  }
  check_sinks(stream, reference);
  reference.exponential_norm = exponential_norms(kernels, stream, exact);
  const ConstMatrix outputs(exact.outputs.data(), std::ssize(exact.max_logit), stream.shape.dv);
  for (const double a : exact.outputs) {
    reference.output_max = std::max(reference.output_max, std::abs(a));
  }
  reference.output_frobenius = frobenius_norm(outputs);
  reference.output_spectral = spectral_norm(outputs);
  return reference;
}

}  // namespace kvbench
