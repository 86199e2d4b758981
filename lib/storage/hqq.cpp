// HQQ: whole numbers of b bits whose zero is fitted by half-quadratic splitting, so that a few
// large errors are spared at the cost of many small ones.
//
// Source: mobiusml/hqq 0.2.8.post1, core/quantize.py (Quantizer.quantize) and core/optimize.py
// (optimize_weights_proximal_legacy, the default), as transformers' HQQQuantizedLayer calls it with
// axis 1: groups of consecutive channels of a token. Computed in float32, as there:
//   s = (2^b - 1) (1 / (max - min)), at most 2e4, 1 where max - min <= 1e-4;  z = -min s
//   up to 20 times: c = clamp(round(x s + z));  y = (c - z) / s;  e = shrink(x - y);
//                   z = mean(c - (x - e) s), until mean |x - y| no longer falls
//   shrink(u) = sign(u) max(0, |u| - |u|^(p - 1) / beta), p = 0.7, beta = 10
// and stored as c, 1 / s and z; decoded (c - z) / s.
//
// The package quantises a tensor at once and stops when the mean over all of it no longer falls;
// here the tensor is one vector, whose groups stop together. With each vector given to it by itself
// and its means taken in double precision, as here, all codes and scales are equal, zeros to six
// digits (tests/peers/storage_test.py); as it is, those of 93 to 99.8 % of the vectors, because the
// last digit of its float32 sums decides when a flat mean no longer falls. Three bits are packed
// without gaps, where the package puts ten codes into 32 bits. Scales and zeros are stored in
// binary16, or in float32: there in the type that the model computes with. Its other axis groups
// numbers across tokens and heads and is not offered.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "storage/bit_stream.hpp"
#include "storage/codec.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"
#include "storage/number_blocks.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr int kIterations = 20;
constexpr float kNorm = 0.7F;
constexpr float kBeta = 10.0F;
constexpr float kLargestScale = 2e4F;
constexpr float kConstant = 1e-4F;  // groups of no larger range have scale 1

struct Parameters {
  Index bits = 4;
  Index group = 64;
  bool in_float32 = false;
};

struct Fit {
  float scale;  // s
  float zero;   // z
};

float code_of(float x, const Fit& fit, float top) {
  return std::min(std::max(std::nearbyint(x * fit.scale + fit.zero), 0.0F), top);
}

float shrunk(float u) {
  const float size = std::fabs(u);
  if (size == 0.0F) return 0.0F;
  const float left = size - (1.0F / kBeta) * std::pow(size, kNorm - 1.0F);
  return left > 0.0F ? std::copysign(left, u) : 0.0F;
}

Fit start(const float* x, Index count, float top) {
  const auto [low, high] = std::minmax_element(x, x + count);
  const float range = *high - *low;
  if (!std::isfinite(range)) {
    throw CellError("the range of a group of numbers is beyond that of float32");
  }
  const float scale = range <= kConstant ? 1.0F : std::min(top * (1.0F / range), kLargestScale);
  return {scale, -*low * scale};
}

// One step: the next zero; adds |x - y| of the present one to `error`.
Fit improved(const float* x, Index count, const Fit& fit, float top, double& error) {
  double zero = 0.0;
  for (Index i = 0; i < count; ++i) {
    const float code = code_of(x[i], fit, top);
    const float miss = x[i] - (code - fit.zero) / fit.scale;
    error += static_cast<double>(std::fabs(miss));
    zero += code - (x[i] - shrunk(miss)) * fit.scale;
  }
  return {fit.scale, static_cast<float>(zero / count)};
}

class Hqq final : public Codec {
 public:
  Hqq(const Parameters& p, const CodecContext& context)
      : bits_(static_cast<int>(p.bits)),
        group_(p.group),
        width_(context.width()),
        in_float32_(p.in_float32),
        top_(static_cast<float>((1 << bits_) - 1)) {}

  Index bytes() const override { return codes_at() + packed_bytes(width_, bits_); }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    std::vector<float> x(width_);
    std::transform(vectors.data, vectors.data + width_, x.begin(),
                   [](double number) { return static_cast<float>(number); });
    const std::vector<Fit> fits = fitted(x.data());
    BitWriter codes(code + codes_at());
    for (Index g = 0; g < group_count(); ++g) {
      const Fit& fit = fits[g];
      put(1.0F / fit.scale, code + 2 * g * number_bytes());
      put(fit.zero, code + (2 * g + 1) * number_bytes());
      for (Index k = g * group_; k < (g + 1) * group_; ++k) {
        const float number = code_of(x[k], fit, top_);
        codes.put(static_cast<std::uint32_t>(number), bits_);
      }
    }
    codes.finish();
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    BitReader codes(code + codes_at());
    for (Index g = 0; g < group_count(); ++g) {
      const float step = get(code + 2 * g * number_bytes());
      const float zero = get(code + (2 * g + 1) * number_bytes());
      for (Index k = g * group_; k < (g + 1) * group_; ++k) {
        const float number = static_cast<float>(codes.get(bits_));
        vectors(0, k) = (number - zero) * step;
      }
    }
  }

 private:
  Index group_count() const { return width_ / group_; }
  Index number_bytes() const { return in_float32_ ? 4 : 2; }
  Index codes_at() const { return 2 * group_count() * number_bytes(); }

  std::vector<Fit> fitted(const float* x) const {
    std::vector<Fit> fits;
    for (Index g = 0; g < group_count(); ++g) fits.push_back(start(x + g * group_, group_, top_));
    float best = std::numeric_limits<float>::infinity();
    for (int i = 0; i < kIterations; ++i) {
      double error = 0.0;
      for (Index g = 0; g < group_count(); ++g) {
        Fit& fit = fits[g];
        fit = improved(x + g * group_, group_, fit, top_, error);
      }
      const float mean = static_cast<float>(error / width_);
      if (!(mean < best)) break;
      best = mean;
    }
    return fits;
  }
  void put(float number, std::byte* out) const {
    if (in_float32_) {
      put_float(number, out);
    } else {
      put_half(number, out);
    }
  }
  float get(const std::byte* in) const {
    return in_float32_ ? get_float(in) : static_cast<float>(get_half(in));
  }

  int bits_;
  Index group_;
  Index width_;
  bool in_float32_;
  float top_;
};

}  // namespace

CodecDescription describe_codec_hqq() {
  TypedCodec<Parameters> c;
  c.id = "hqq";
  c.title = "whole numbers of b bits, zeros fitted against large errors";
  c.source = "HQQ (Badri and Shaji), as transformers' QuantizedCache calls it";
  c.bits = "b + 32/group (scales fp32: b + 64/group)";
  c.parameters = {
      field("bits", &Parameters::bits, "bits of a code: 1, 2, 3, 4 or 8").at_least(1).at_most(8),
      field("group", &Parameters::group, "channels of a token that share scale and zero")
          .at_least(1),
      field("scales", &Parameters::in_float32, Choices<bool>{{"fp16", false}, {"fp32", true}},
            "how scales and zeros are stored: binary16 (16 bits) or float32 (32 bits)")};
  c.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.bits <= 4 || p.bits == 8) return std::nullopt;
    return std::pair("bits", fmt::format("must be 1, 2, 3, 4 or 8, got {}", p.bits));
  };
  c.skip_reason = [](const Parameters& p, const StreamShape& shape, CacheTensor tensor, Index) {
    return uneven_blocks(shape, tensor, p.group,
                         fmt::format("choose a group that divides {}", width_of(shape, tensor)));
  };
  c.create = [](const Parameters& p, const CodecContext& context) {
    return std::make_unique<Hqq>(p, context);
  };
  return c;
}

}  // namespace kvbench
