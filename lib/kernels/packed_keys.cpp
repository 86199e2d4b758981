#include "kernels/packed_keys.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/interleaved.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"

namespace kvbench {
namespace {

// Query rows x panels of 8 tokens whose sums stay in registers.
constexpr int kRows = 6;
#if defined(__AVX512F__)
constexpr int kPanels = 2;
#else
constexpr int kPanels = 1;
#endif
static_assert(PackedKeys::kStep % (kPanels * Lanes::kCount) == 0);

// scale <q, k>. Each sum is one fused multiply-add chain over k, so its bits do not depend on the
// blocking.
template <int Rows>
void block(double scale, const double* const* queries, const double* panels, Index d, double* out,
           Index stride) {
  Lanes sums[Rows * kPanels];
  unrolled<Rows * kPanels>([&](auto i) { sums[i] = Lanes::all(0.0); });
  for (Index k = 0; k < d; ++k) {
    Lanes keys[kPanels];
    unrolled<kPanels>([&](auto p) { keys[p] = Lanes::load(panels + (p * d + k) * Lanes::kCount); });
    unrolled<Rows * kPanels>([&](auto i) {
      sums[i] = Lanes::fma(Lanes::all(queries[i / kPanels][k]), keys[i % kPanels], sums[i]);
    });
  }
  unrolled<Rows * kPanels>([&](auto i) {
    (Lanes::all(scale) * sums[i]).store(out + i / kPanels * stride + i % kPanels * Lanes::kCount);
  });
}

using Block = void (*)(double, const double* const*, const double*, Index, double*, Index);
constexpr Block kBlocks[] = {block<1>, block<2>, block<3>, block<4>, block<5>, block<6>};
static_assert(std::size(kBlocks) == kRows);

}  // namespace

void add_alibi(const Stream& stream, int g, Index row, Index first, Index last, double* x) {
  if (stream.alibi_slopes.empty()) return;
  const double slope = stream.alibi_slopes[g];
  for (Index j = first; j < last; ++j) x[j - first] = alibi_logit(x[j - first], slope, j - row);
}

void add_alibi(const Stream& stream, int g, Index row, const std::vector<std::int32_t>& tokens,
               double* x) {
  if (stream.alibi_slopes.empty()) return;
  const double slope = stream.alibi_slopes[g];
  for (std::size_t p = 0; p < tokens.size(); ++p) x[p] = alibi_logit(x[p], slope, tokens[p] - row);
}

PackedKeys::PackedKeys(ConstMatrix keys, Index first, Index last)
    : first_(first), padded_(whole_steps(last - first)), d_(keys.cols) {
  pack(last - first, [&](Index j) { return keys.row(first + j); });
}

PackedKeys::PackedKeys(ConstMatrix keys, const std::vector<std::int32_t>& tokens)
    : first_(0), padded_(whole_steps(std::ssize(tokens))), d_(keys.cols) {
  pack(std::ssize(tokens), [&](Index j) { return keys.row(tokens[j]); });
}

template <class RowOf>
void PackedKeys::pack(Index count, const RowOf& row_of) {
  panels_.resize(padded_ * d_);
  double* to = panels_.data();
  for (Index j = 0; j < count; j += Lanes::kCount, to += Lanes::kCount * d_) {
    const Index rows = std::min<Index>(Lanes::kCount, count - j);
    const double* from[Lanes::kCount];
    for (Index r = 0; r < rows; ++r) from[r] = row_of(j + r);
    for (Index r = rows; r < Lanes::kCount; ++r) from[r] = from[0];  // padding, never read
    interleave(from, d_, to, Lanes::kCount);
  }
}

void PackedKeys::logits(const StreamShape& shape, const std::vector<const double*>& queries,
                        Index begin, Index end, double* out, Index stride) const {
  const Index count = std::ssize(queries);
  for (Index q = 0; q < count; q += kRows) {
    const Block compute = kBlocks[std::min<Index>(kRows, count - q) - 1];
    for (Index j = begin; j < end; j += kPanels * Lanes::kCount) {
      const double* panels = panels_.data() + j * d_;
      compute(shape.scale, queries.data() + q, panels, d_, out + q * stride + (j - begin), stride);
    }
  }
  if (shape.softcap <= 0.0) return;
  for (Index q = 0; q < count; ++q) {
    double* row = out + q * stride;
    for (Index j = 0; j < end - begin; j += Lanes::kCount) {
      canonical_softcap(Lanes::load(row + j), shape.softcap).store(row + j);
    }
  }
}

}  // namespace kvbench
