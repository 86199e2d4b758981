// Groups of numbers as whole numbers of b bits.
//
// Asymmetric: of a group, m = min x and r = (max x - min x) / (2^b - 1) are stored as M and R; the
// code of x is round((x - M) / R), ties to the even code, limited to 0 .. 2^b - 1, and stands for
// code R + M. Symmetric: r = max |x| / (2^(b-1) - 1) is stored as R; round(x / R), limited to
// +-(2^(b-1) - 1), stands for itself times R. Where R is 0, all codes are those of M, or of 0. With
// exact scales the error is at most R / 2 and the least and the largest number come back; with M
// and R in binary16 it may exceed that by |M - m| + (2^b - 1) |R - r|.
#pragma once

#include <cstddef>

#include "numerics/matrix_view.hpp"
#include "parameters/parameter_table.hpp"
#include "storage/bit_stream.hpp"

namespace kvbench {

// How M and R are stored, 2 or 8 bytes each: as the nearest numbers of binary16, or as computed.
enum class Scales { kHalf, kExact };
inline const Choices<Scales> kScaleChoices = {{"fp16", Scales::kHalf}, {"exact", Scales::kExact}};

// Bytes of one number so stored.
inline constexpr Index bytes_of(Scales scales) { return scales == Scales::kHalf ? 2 : 8; }
// Writes a finite number, throws CellError beyond binary16's range; returns where the next one
// goes.
std::byte* put_scale(double x, Scales scales, std::byte* out);
// Reads one and moves `in` to the next.
double get_scale(Scales scales, const std::byte*& in);

struct UniformQuantizer {
  int bits = 4;  // 1 .. 8, symmetric ones from 2
  bool symmetric = false;
  Scales scales = Scales::kHalf;

  // Bytes of a group's scales.
  Index scale_bytes() const { return (symmetric ? 1 : 2) * bytes_of(scales); }
  // `x`: `count` >= 1 numbers; `scale`: [scale_bytes()]. Throws CellError where M or R cannot be
  // stored.
  void encode(const double* x, Index count, std::byte* scale, BitWriter& codes) const;
  void decode(const std::byte* scale, BitReader& codes, double* x, Index count) const;
};

}  // namespace kvbench
