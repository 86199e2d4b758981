#include "storage/uniform_quantizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "numerics/lanes.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"
#include "system/error.hpp"

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

struct Range {
  double low;
  double high;
};

// Range of the numbers; the first of two zeros of different sign counts.
Range range_of(const double* x, Index count) {
  Range all{x[0], x[0]};
  Index i = 0;
  if (count >= Lanes::kCount) {
    Lanes low = Lanes::load(x);
    Lanes high = low;
    for (i = Lanes::kCount; i + Lanes::kCount <= count; i += Lanes::kCount) {
      low = Lanes::min(low, Lanes::load(x + i));
      high = Lanes::max(high, Lanes::load(x + i));
    }
    std::array<double, Lanes::kCount> lows;
    low.store(lows.data());
    all = {*std::min_element(lows.begin(), lows.end()), high.largest()};
    if (all.low == 0.0 || all.high == 0.0) {
      all = {x[0], x[0]};
      i = 0;
    }
  }
  for (; i < count; ++i) {
    all.low = std::min(all.low, x[i]);
    all.high = std::max(all.high, x[i]);
  }
  return all;
}

Grid fitted_grid(const UniformQuantizer& q, const Range& range) {
  Grid grid = bare_grid(q);
  if (q.symmetric) {
    grid.step = stored(std::max(-range.low, range.high) / grid.middle, q.scales);
  } else {
    grid.least = stored(range.low, q.scales);
    grid.step = stored((range.high - range.low) / grid.top, q.scales);
  }
  return grid;
}

Grid stored_grid(const UniformQuantizer& q, const std::byte* in) {
  Grid grid = bare_grid(q);
  grid.step = get_scale(q.scales, in);
  if (!q.symmetric) grid.least = get_scale(q.scales, in);
  return grid;
}

// The codes of up to kChunk numbers.
void find_codes(const Grid& grid, const double* x, Index count, std::uint8_t* codes) {
  for (Index i = 0; i < count; ++i) {
    const double at = (x[i] - grid.least) / grid.step;
    const double code = std::nearbyint(at) + grid.middle;
    codes[i] = static_cast<std::uint8_t>(
        static_cast<std::int32_t>(std::min(std::max(code, 0.0), grid.top)));
  }
}

}  // namespace

std::byte* put_scale(double x, Scales scales, std::byte* out) {
  if (scales == Scales::kExact) {
    put_double(x, out);
  } else {
    put_half(x, out);
  }
  return out + bytes_of(scales);
}

double get_scale(Scales scales, const std::byte*& in) {
  const double x = scales == Scales::kExact ? get_double(in) : get_half(in);
  in += bytes_of(scales);
  return x;
}

void UniformQuantizer::encode(const double* x, Index count, std::byte* scale,
                              BitWriter& out) const {
  const Grid grid = fitted_grid(*this, range_of(x, count));
  scale = put_scale(grid.step, scales, scale);
  if (!symmetric) put_scale(grid.least, scales, scale);
  std::array<std::uint8_t, kChunk> codes;
  codes.fill(static_cast<std::uint8_t>(grid.middle));  // codes of a step 0
  for (Index first = 0; first < count; first += kChunk) {
    const Index some = std::min(kChunk, count - first);
    if (grid.step != 0.0) find_codes(grid, x + first, some, codes.data());
    out.put_all(codes.data(), some, bits);
  }
}

void UniformQuantizer::decode(const std::byte* scale, BitReader& in, double* x, Index count) const {
  const Grid grid = stored_grid(*this, scale);
  std::array<std::uint8_t, kChunk> codes;
  for (Index first = 0; first < count; first += kChunk) {
    const Index some = std::min(kChunk, count - first);
    in.get_all(codes.data(), some, bits);
    for (Index i = 0; i < some; ++i) {
      const double code = static_cast<double>(codes[i]) - grid.middle;
      x[first + i] = code * grid.step + grid.least;
    }
  }
}

}  // namespace kvbench
