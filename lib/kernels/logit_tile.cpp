#include "kernels/logit_tile.hpp"

#include <algorithm>
#include <cstring>

#include "core/canonical.hpp"

namespace kvbench {
namespace {

// Query rows x panels of 8 tokens whose sums stay in registers.
#if defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int kPanels = 2;
#else
constexpr int kRows = 6;
constexpr int kPanels = 1;
#endif

void finish(const StreamShape& shape, Lanes dot, double* out) {
  Lanes x = Lanes::all(shape.scale) * dot;
  if (shape.softcap > 0.0) x = canonical_softcap(x, shape.softcap);
  x.store(out);
}

// Each sum is one fused multiply-add chain over k, so its bits do not depend on the blocking.
template <int Rows>
void block(const StreamShape& shape, const double* const* queries, const double* panels, Index d,
           double* out) {
  Lanes sums[Rows][kPanels];
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < kPanels; ++p) sums[r][p] = Lanes::all(0.0);
  }
  for (Index k = 0; k < d; ++k) {
    Lanes keys[kPanels];
    for (int p = 0; p < kPanels; ++p) keys[p] = Lanes::load(panels + (p * d + k) * Lanes::kCount);
    for (int r = 0; r < Rows; ++r) {
      const Lanes q = Lanes::all(queries[r][k]);
      for (int p = 0; p < kPanels; ++p) sums[r][p] = Lanes::fma(q, keys[p], sums[r][p]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      finish(shape, sums[r][p], out + r * kTileTokens + p * Lanes::kCount);
    }
  }
}

}  // namespace

KeyTile::KeyTile(ConstMatrix keys, Index first)
    : first_(first), d_(keys.cols), packed_(static_cast<std::size_t>(kTileTokens * keys.cols)) {
  const Index last = std::min(first + kTileTokens, keys.rows);
  for (Index j = first; j < last; ++j) {
    const Index local = j - first;
    double* column =
        packed_.data() + (local / Lanes::kCount) * d_ * Lanes::kCount + local % Lanes::kCount;
    const double* key = keys.row(j);
    for (Index k = 0; k < d_; ++k) column[k * Lanes::kCount] = key[k];
  }
}

void KeyTile::logits(const StreamShape& shape, const std::vector<const double*>& queries,
                     double* out) const {
  const Index count = static_cast<Index>(queries.size());
  for (Index q = 0; q < count; q += kRows) {
    const Index rows = std::min<Index>(kRows, count - q);
    for (Index panel = 0; panel < kTileTokens / Lanes::kCount; panel += kPanels) {
      const double* panels = packed_.data() + panel * d_ * Lanes::kCount;
      double* target = out + q * kTileTokens + panel * Lanes::kCount;
      const double* const* first = queries.data() + q;
      switch (rows) {
        case 1:
          block<1>(shape, first, panels, d_, target);
          break;
        case 2:
          block<2>(shape, first, panels, d_, target);
          break;
        case 3:
          block<3>(shape, first, panels, d_, target);
          break;
        case 4:
          block<4>(shape, first, panels, d_, target);
          break;
        case 5:
          block<5>(shape, first, panels, d_, target);
          break;
        default:
          block<kRows>(shape, first, panels, d_, target);
          break;
      }
    }
  }
}

}  // namespace kvbench
