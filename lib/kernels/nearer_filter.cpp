#include "kernels/nearer_filter.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "numerics/unrolled.hpp"
#include "system/parallel.hpp"

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

namespace kvbench {
namespace {

// Some floats at once. Bits differ between instruction sets, and may: scores decide nothing.
#if defined(__AVX512F__)
struct Floats {
  static constexpr int kCount = 16;
  __m512 v;
  static Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Floats all(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  static Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
  friend Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
  // Bit i: lane i of a is not less than that of b.
  static unsigned reaches(Floats a, Floats b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
};
constexpr int kCenters = 12;  // whose scores with a tile stay in registers
#elif defined(__AVX2__) && defined(__FMA__)
struct Floats {
  static constexpr int kCount = 8;
  __m256 v;
  static Floats load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Floats all(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  static Floats fma(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.v, b.v)}; }
  friend Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.v, b.v)}; }
  static unsigned reaches(Floats a, Floats b) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)));
  }
};
constexpr int kCenters = 6;
#else
struct Floats {
  static constexpr int kCount = 4;
  using Vector [[gnu::vector_size(16)]] = float;
  Vector v;
  static Floats load(const float* p) { return {Vector{p[0], p[1], p[2], p[3]}}; }
  static Floats all(float x) { return {Vector{x, x, x, x}}; }
  void store(float* p) const {
    for (int i = 0; i < kCount; ++i) p[i] = v[i];
  }
  static Floats fma(Floats a, Floats b, Floats c) { return {a.v * b.v + c.v}; }
  static Floats max(Floats a, Floats b) { return {a.v > b.v ? a.v : b.v}; }
  friend Floats operator-(Floats a, Floats b) { return {a.v - b.v}; }
  static unsigned reaches(Floats a, Floats b) {
    unsigned bits = 0;
    for (int i = 0; i < kCount; ++i) bits |= (a.v[i] >= b.v[i] ? 1U : 0U) << i;
    return bits;
  }
};
constexpr int kCenters = 6;
#endif

constexpr int kVectors = 2;  // vectors of points whose scores stay in registers
constexpr Index kStrip = kVectors * Floats::kCount;
static_assert(NearerFilter::kWidth % kStrip == 0);

// A number in single precision that is not above x, and one that is not below x.
float rounded_down(double x) { return static_cast<float>(x - std::abs(x) * 0x1p-23 - 0x1p-140); }
float rounded_up(double x) { return static_cast<float>(x + std::abs(x) * 0x1p-23 + 0x1p-140); }

}  // namespace

NearerFilter::NearerFilter(ConstMatrix points, Index first)
    : scale_(points, first), first_(first), count_(points.rows - first), d_(points.cols) {
  if (!usable()) return;
  packed_.resize(tiles() * d_ * kWidth);
  norms_.resize(tiles() * kWidth);
  parallel_for(tiles(), [&](Index tile) { pack(points, tile); });
}

void NearerFilter::pack(ConstMatrix points, Index tile) {
  const Index base = tile * kWidth;
  float* to = packed_.data() + base * d_;
  for (Index i = 0; i < kWidth; ++i) {
    const bool used = base + i < count_;
    double squares = 0.0;
    for (Index k = 0; k < d_; ++k) {
      const double x = used ? (points(first_ + base + i, k) - scale_.mean[k]) * scale_.scale : 0.0;
      squares += x * x;
      to[k * kWidth + i] = static_cast<float>(x);
    }
    norms_[base + i] = std::sqrt(squares);
  }
}

void NearerFilter::forget() {
  longest_ = 0.0;
  centers_.clear();
  starts_.clear();
}

void NearerFilter::add(Index row) {
  const auto lane = std::ssize(starts_) % kCenters;
  const std::size_t base = starts_.size() / kCenters * (kCenters * d_);
  if (lane == 0) centers_.resize(base + (kCenters * d_), 0.0F);
  const Index place = row - first_;
  const float* from = packed_.data() + place / kWidth * kWidth * d_ + place % kWidth;
  float* to = centers_.data() + base + lane;
  for (Index k = 0; k < d_; ++k) to[k * kCenters] = from[k * kWidth];
  const double norm = norms_[place];
  starts_.push_back(static_cast<float>(-0.5 * norm * norm));
  longest_ = std::max(longest_, norm);
}

void NearerFilter::finish() {
  while (starts_.size() % kCenters != 0) {
    starts_.push_back(-std::numeric_limits<float>::infinity());
  }
}

// A centre's squared distance is norm^2 - 2 score, give or take the band: one whose score is below
// half of norm^2 - band - known is farther than what is known.
NearerFilter::Limits NearerFilter::limits(Index tile, const double* known) const {
  Limits out;
  const double scale = scale_.scale * scale_.scale;
  const double* norms = norms_.data() + tile * kWidth;
  const Index used = std::min(kWidth, count_ - tile * kWidth);
  for (Index i = 0; i < kWidth; ++i) {
    // Two steps of more dimensions: comparisons are in single precision, too.
    const double band = filter_band(d_ + 2, norms[i] + longest_);
    out.least[i] = i < used ? rounded_down(0.5 * (norms[i] * norms[i] - band - known[i] * scale))
                            : std::numeric_limits<float>::infinity();
    out.band[i] = rounded_up(band);
  }
  return out;
}

void NearerFilter::find_nearer(Index tile, const double* known, std::vector<Pair>& pairs) const {
  pairs.clear();
  Limits limit = limits(tile, known);
  for (Index strip = 0; strip < kWidth; strip += kStrip) find_in_strip(tile, strip, limit, pairs);
  // Later centres may be certainly nearer.
  std::erase_if(pairs, [&](const Pair& pair) { return pair.score < limit.least[pair.point]; });
}

// Raises the least score that matters.
void NearerFilter::find_in_strip(Index tile, Index strip, Limits& limit,
                                 std::vector<Pair>& pairs) const {
  const float* points = packed_.data() + tile * d_ * kWidth + strip;
  Floats least[kVectors];
  unrolled<kVectors>(
      [&](auto v) { least[v] = Floats::load(limit.least + strip + v * Floats::kCount); });
  for (std::size_t first = 0; first < starts_.size(); first += kCenters) {
    const float* centers = centers_.data() + static_cast<Index>(first) * d_;
    Floats scores[kCenters][kVectors];
    unrolled<kCenters>([&](auto c) {
      unrolled<kVectors>([&](auto v) { scores[c][v] = Floats::all(starts_[first + c]); });
    });
    for (Index k = 0; k < d_; ++k) {
      Floats x[kVectors];
      unrolled<kVectors>(
          [&](auto v) { x[v] = Floats::load(points + k * kWidth + v * Floats::kCount); });
      unrolled<kCenters>([&](auto c) {
        const Floats y = Floats::all(centers[k * kCenters + c]);
        unrolled<kVectors>([&](auto v) { scores[c][v] = Floats::fma(x[v], y, scores[c][v]); });
      });
    }
    unsigned any = 0;
    unrolled<kVectors>([&](auto v) {
      Floats best = scores[0][v];
      unrolled<kCenters>([&](auto c) { best = Floats::max(best, scores[c][v]); });
      any |= Floats::reaches(best, least[v]);
      // Both scores are half a band off at most: what lies below is farther than the best of these.
      const Floats band = Floats::load(limit.band + strip + v * Floats::kCount);
      least[v] = Floats::max(least[v], best - band);
    });
    if (any == 0) continue;
    unrolled<kCenters>([&](auto c) {
      unrolled<kVectors>([&](auto v) {
        unsigned bits = Floats::reaches(scores[c][v], least[v]);
        if (bits == 0) return;
        alignas(64) float stored[Floats::kCount];
        scores[c][v].store(stored);
        for (; bits != 0; bits &= bits - 1) {
          const int lane = std::countr_zero(bits);
          const auto point = static_cast<std::int32_t>(strip) + v * Floats::kCount + lane;
          pairs.push_back({point, static_cast<std::int32_t>(first) + c, stored[lane]});
        }
      });
    });
  }
  unrolled<kVectors>([&](auto v) { least[v].store(limit.least + strip + v * Floats::kCount); });
}

}  // namespace kvbench
