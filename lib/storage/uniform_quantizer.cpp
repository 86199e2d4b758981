#include "storage/uniform_quantizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"

namespace kvbench {
namespace {

constexpr Index kChunk = 64;

// A code c stands for (c - middle) step + least.
struct Grid {
  double step;
  double least;
  double middle;
  double top;  // the largest code
};

Grid bare_grid(const UniformQuantizer& q) {
  const double levels = std::ldexp(1.0, q.symmetric ? q.bits - 1 : q.bits) - 1.0;
  return {0.0, 0.0, q.symmetric ? levels : 0.0, q.symmetric ? 2.0 * levels : levels};
}

double stored(double x, Scales scales) {
  if (!std::isfinite(x)) {
    throw CellError("the range of a group of numbers is beyond that of double precision");
  }
  return scales == Scales::kHalf ? rounded_to_half(x) : x;
}

Grid fitted_grid(const UniformQuantizer& q, const double* x, Index count, Index stride) {
  double low = x[0];
  double high = x[0];
  for (Index i = 1; i < count; ++i) {
    low = std::min(low, x[i * stride]);
    high = std::max(high, x[i * stride]);
  }
  Grid grid = bare_grid(q);
  if (q.symmetric) {
    grid.step = stored(std::max(-low, high) / grid.middle, q.scales);
  } else {
    grid.least = stored(low, q.scales);
    grid.step = stored((high - low) / grid.top, q.scales);
  }
  return grid;
}

std::byte* put_scale(double x, Scales scales, std::byte* out) {
  if (scales == Scales::kExact) {
    put_double(x, out);
    return out + 8;
  }
  put_bytes(half_bits(x), out);
  return out + 2;
}

double get_scale(Scales scales, const std::byte*& in) {
  const bool exact = scales == Scales::kExact;
  const double x = exact ? get_double(in) : from_half(get_bytes<std::uint16_t>(in));
  in += exact ? 8 : 2;
  return x;
}

Grid stored_grid(const UniformQuantizer& q, const std::byte* in) {
  Grid grid = bare_grid(q);
  grid.step = get_scale(q.scales, in);
  if (!q.symmetric) grid.least = get_scale(q.scales, in);
  return grid;
}

// The codes of up to kChunk numbers.
template <bool kHalfUp>
void find_codes(const Grid& grid, const double* x, Index count, Index stride,
                std::array<double, kChunk>& codes) {
  for (Index i = 0; i < count; ++i) {
    const double at = (x[i * stride] - grid.least) / grid.step;
    const double code = (kHalfUp ? std::floor(at + 0.5) : std::nearbyint(at)) + grid.middle;
    codes[static_cast<std::size_t>(i)] = std::min(std::max(code, 0.0), grid.top);
  }
}

}  // namespace

void UniformQuantizer::encode(const double* x, Index count, Index stride, std::byte* scale,
                              BitWriter& out) const {
  const Grid grid = fitted_grid(*this, x, count, stride);
  scale = put_scale(grid.step, scales, scale);
  if (!symmetric) put_scale(grid.least, scales, scale);
  std::array<double, kChunk> codes{};
  codes.fill(grid.middle);  // of a step 0
  for (Index first = 0; first < count; first += kChunk) {
    const Index some = std::min(kChunk, count - first);
    if (grid.step != 0.0) {
      (rounding == Rounding::kHalfUp ? find_codes<true> : find_codes<false>)(grid,
                                                                             x + first * stride,
                                                                             some, stride, codes);
    }
    for (Index i = 0; i < some; ++i) {
      out.put(static_cast<std::uint32_t>(codes[static_cast<std::size_t>(i)]), bits);
    }
  }
}

void UniformQuantizer::decode(const std::byte* scale, BitReader& codes, double* x, Index count,
                              Index stride) const {
  const Grid grid = stored_grid(*this, scale);
  for (Index i = 0; i < count; ++i) {
    const double code = static_cast<double>(codes.get(bits)) - grid.middle;
    x[i * stride] = code * grid.step + grid.least;
  }
}

}  // namespace kvbench
