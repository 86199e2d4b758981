// Four-bit floating point (E2M1) in blocks with a scale of 8 bits.
//
// mxfp4: OCP MX 1.0: of 32 numbers, the scale is the power of two (E8M0) two below that of the
// largest size; numbers are rounded to nearest, ties to even, larger ones than 6 scales become 6
// scales. ggml's block_mxfp4 has the same layout, bit by bit; its codes of ties are the smaller
// ones (of 2.5 scales 2, as here; of 3.5 scales 3, here 4), and its logarithm in float32 takes the
// next power of two for a largest size just below one.
//
// nvfp4: NVIDIA: of 16 numbers, the scale is E4M3 and relative to a float32 scale of the tensor:
// g = max |x| / (6 * 448), s = E4M3(max of the block / (6 g)), codes are E2M1(x / (s g)). Without g
// (scale none) it is 1, and s lies between 2^-9 and 448; a block whose s is 0 is zeros.
//
// Both are computed in double precision, g in float32. Two codes a byte: numbers i and i + half a
// block. torchao 0.18.0, run once on the shipped dump's keys and values and on 23,730 made-up
// vectors: to_mx has the scales and codes of mxfp4, every bit. nvfp4_quantize, which computes in
// float32 and has no s below 2^-6, has the codes of 99.98 % of the numbers with larger s, and the s
// of 99.9 % of the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "storage/codec.hpp"
#include "storage/common_scale.hpp"
#include "storage/little_endian.hpp"
#include "storage/number_blocks.hpp"
#include "storage/small_float.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

template <Index kNumbers>
double largest_size(const double* x) {
  double size = 0.0;
  for (Index i = 0; i < kNumbers; ++i) size = std::max(size, std::fabs(x[i]));
  return size;
}

template <Index kNumbers>
void put_codes(const double* x, double scale, std::byte* out) {
  std::array<std::uint32_t, kNumbers> codes;
  for (std::size_t i = 0; i < kNumbers; ++i) codes[i] = small_float_bits<kE2M1>(x[i] / scale);
  for (std::size_t i = 0; i < kNumbers / 2; ++i) {
    out[i] = static_cast<std::byte>(codes[i] | (codes[i + kNumbers / 2] << 4));
  }
}

template <Index kNumbers>
void get_codes(const std::byte* in, double scale, double* x) {
  for (std::size_t i = 0; i < kNumbers / 2; ++i) {
    const auto byte = std::to_integer<std::size_t>(in[i]);
    x[i] = kSmallFloatValues<kE2M1>[byte & 15] * scale;
    x[i + kNumbers / 2] = kSmallFloatValues<kE2M1>[byte >> 4] * scale;
  }
}

struct MxFp4 {
  static constexpr Index kNumbers = 32;
  static constexpr Index kBytes = 17;
  static constexpr int kBias = 127;    // bias of E8M0
  static constexpr int kExponent = 2;  // exponent of E2M1's largest number

  static void encode(const double* x, std::byte* out) {
    const double size = largest_size<kNumbers>(x);
    const int exponent = size == 0.0 ? -kBias : std::max(std::ilogb(size) - kExponent, -kBias);
    if (exponent > kBias) {
      throw CellError(
          fmt::format("{} is beyond the range of an E8M0 scale, 2^{}", size, kBias + kExponent));
    }
    out[0] = static_cast<std::byte>(exponent + kBias);
    put_codes<kNumbers>(x, std::ldexp(1.0, exponent), out + 1);
  }
  static void decode(const std::byte* in, double* x) {
    const double scale = std::ldexp(1.0, std::to_integer<int>(in[0]) - kBias);
    get_codes<kNumbers>(in + 1, scale, x);
  }
};

struct NvParameters {
  CommonScale scale = CommonScale::kTensor;
};

class NvFp4 final : public Codec {
 public:
  static constexpr Index kNumbers = 16;
  static constexpr Index kBytes = 9;

  NvFp4(CommonScale scale, const CodecContext& context)
      : scale_(scale), width_(context.width()), common_(prompt_scale(scale, context, kLargest)) {}

  Index bytes() const override { return codes_at() + width_ / kNumbers * kBytes; }
  Index shared_bytes() const override { return scale_ == CommonScale::kTensor ? kScaleBytes : 0; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    double common = common_;
    if (scale_ == CommonScale::kToken) {
      const float own = scale_to({vectors.data, 1, width_}, kLargest);
      put_float(own, code);
      common = own;
    }
    code += codes_at();
    for (Index k = 0; k < width_; k += kNumbers, code += kBytes) {
      encode_block(vectors.data + k, common, code);
    }
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    const double common = scale_ == CommonScale::kToken ? get_float(code) : common_;
    code += codes_at();
    for (Index k = 0; k < width_; k += kNumbers, code += kBytes) {
      get_codes<kNumbers>(code + 1,
                          kSmallFloatValues<kE4M3>[std::to_integer<std::size_t>(*code)] * common,
                          vectors.data + k);
    }
  }

 private:
  static constexpr double kLargestCode = small_float_value<kE2M1>(kE2M1.largest);
  static constexpr auto kLargest =
      static_cast<float>(kLargestCode * small_float_value<kE4M3>(kE4M3.largest));

  Index codes_at() const { return scale_ == CommonScale::kToken ? kScaleBytes : 0; }
  static void encode_block(const double* x, double common, std::byte* code) {
    const std::uint32_t scale =
        small_float_bits<kE4M3>(largest_size<kNumbers>(x) / (kLargestCode * common));
    *code = static_cast<std::byte>(scale);
    if (scale == 0) {
      std::fill_n(code + 1, kNumbers / 2, std::byte{0});
    } else {
      put_codes<kNumbers>(x, kSmallFloatValues<kE4M3>[scale] * common, code + 1);
    }
  }

  CommonScale scale_;
  Index width_;
  double common_;
};

}  // namespace

CodecDescription describe_codec_mxfp4() {
  TypedCodec<NoParameters> c;
  c.id = "mxfp4";
  c.title = "blocks of 32: a power of two and 4-bit floating point, E2M1";
  c.source = "OCP MX 1.0, MXFP4";
  c.bits = "4.25";
  c.skip_reason = [](const NoParameters&, const StreamShape& shape, CacheTensor tensor, Index) {
    return uneven_blocks(shape, tensor, MxFp4::kNumbers, kWithoutBlocks);
  };
  c.create = [](const NoParameters&, const CodecContext& context) {
    return std::make_unique<NumberBlocks<MxFp4>>(context.width());
  };
  return c;
}

CodecDescription describe_codec_nvfp4() {
  TypedCodec<NvParameters> c;
  c.id = "nvfp4";
  c.title = "blocks of 16: an E4M3 scale and 4-bit floating point, E2M1";
  c.source = "NVIDIA, NVFP4";
  c.bits = "4.5 (scale token: 4.5 + 32/d)";
  c.parameters = {
      field("scale", &NvParameters::scale, kCommonScales,
            "what the blocks' scales are relative to a float32 of: nothing, all vectors "
            "(the prompt's), or each vector")};
  c.skip_reason = [](const NvParameters& p, const StreamShape& shape, CacheTensor tensor,
                     Index prompt) {
    auto reason = uneven_blocks(shape, tensor, NvFp4::kNumbers, kWithoutBlocks);
    return reason ? reason : no_prompt_scale(p.scale, prompt);
  };
  c.not_rotated = [](const NvParameters& p) { return not_rotated(p.scale); };
  c.create = [](const NvParameters& p, const CodecContext& context) {
    return std::make_unique<NvFp4>(p.scale, context);
  };
  return c;
}

}  // namespace kvbench
