// Floating-point formats, number by number.
//
// Sources: IEEE 754-2019 (binary16); bfloat16, the upper half of a binary32; OCP OFP8 1.0 (E4M3,
// E5M2). Numbers are rounded to nearest, ties to even, in one step from double precision. Beyond
// the largest number of bf16, fp16 and fp8_e5m2 the cell fails; fp8_e4m3, which has no infinity,
// keeps its largest number, 448, as torch 2.15 casts (ml_dtypes makes NaN of it).
//
// A scale as transformers' Fp8QuantizedLayer has it (5.23): max |x| / largest number in float32, x
// / scale in float32 before the cast, times scale in float32 after it. That layer's tensor is all
// KV heads of a layer, here it is one KV head.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "storage/codec.hpp"
#include "storage/common_scale.hpp"
#include "storage/little_endian.hpp"
#include "storage/small_float.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct Parameters {
  CommonScale scale = CommonScale::kNone;
};

template <SmallFloat F>
inline constexpr Index kBytes = F.exponent_bits + F.fraction_bits < 8 ? 1 : 2;

template <SmallFloat F>
void put(std::uint32_t bits, std::byte* out) {
  if constexpr (kBytes<F> == 1) {
    *out = static_cast<std::byte>(bits);
  } else {
    put_bytes(static_cast<std::uint16_t>(bits), out);
  }
}

// `bits_of(x)` of `count` numbers. They are found apart from being written: bytes may lie anywhere,
// so that a loop that writes them is not vectorised.
template <SmallFloat F, class BitsOf>
void put_some(const double* x, Index count, std::byte* out, const BitsOf& bits_of) {
  constexpr std::size_t kAtOnce = 64;
  std::array<std::conditional_t<kBytes<F> == 1, std::uint8_t, std::uint16_t>, kAtOnce> found;
  for (Index first = 0; first < count; first += kAtOnce) {
    const auto some = std::min(kAtOnce, static_cast<std::size_t>(count - first));
    for (std::size_t k = 0; k < some; ++k) {
      found[k] = static_cast<typename decltype(found)::value_type>(
          bits_of(x[first + static_cast<Index>(k)]));
    }
    for (std::size_t k = 0; k < some; ++k, out += kBytes<F>) put<F>(found[k], out);
  }
}

template <SmallFloat F>
double get(const std::byte* in) {
  if constexpr (kBytes<F> == 1) {
    return kSmallFloatValues<F>[std::to_integer<std::size_t>(*in)];
  } else {
    return small_float_value<F>(get_bytes<std::uint16_t>(in));
  }
}

template <SmallFloat F>
class Floats final : public Codec {
 public:
  explicit Floats(Index width) : width_(width) {}

  Index bytes() const override { return kBytes<F> * width_; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    std::uint32_t overflows = 0;
    put_some<F>(vectors.data, width_, code, [&](double x) {
      const std::uint32_t bits = small_float_bits<F>(x);
      overflows |= (bits & (F.sign() - 1)) > F.largest ? 1U : 0U;
      return bits;
    });
    if (overflows != 0) report(vectors);
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    for (Index k = 0; k < width_; ++k) vectors(0, k) = get<F>(code + kBytes<F> * k);
  }

 private:
  [[noreturn]] void report(ConstMatrix vectors) const {
    Index k = 0;
    while (std::fabs(small_float_value<F>(small_float_bits<F>(vectors(0, k)))) <=
           small_float_value<F>(F.largest)) {
      ++k;
    }
    throw CellError(fmt::format("{} is beyond {}, the largest number of the storage format",
                                vectors(0, k), small_float_value<F>(F.largest)));
  }

  Index width_;
};

template <SmallFloat F>
class ScaledFloats final : public Codec {
 public:
  ScaledFloats(CommonScale scale, const CodecContext& context)
      : own_(scale == CommonScale::kToken),
        width_(context.width()),
        scale_(prompt_scale(scale, context, kLargest)) {}

  Index bytes() const override { return width_ + (own_ ? kScaleBytes : 0); }
  Index shared_bytes() const override { return own_ ? 0 : kScaleBytes; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    float scale = scale_;
    if (own_) {
      scale = scale_to({vectors.data, 1, width_}, kLargest);
      put_float(scale, code);
      code += kScaleBytes;
    }
    put_some<F>(vectors.data, width_, code, [scale](double x) {
      const float relative = static_cast<float>(x) / scale;
      return small_float_bits<F>(std::min(std::max(relative, -kLargest), kLargest));
    });
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    float scale = scale_;
    if (own_) {
      scale = get_float(code);
      code += kScaleBytes;
    }
    for (Index k = 0; k < width_; ++k) {
      vectors(0, k) = static_cast<float>(get<F>(code + k)) * scale;
    }
  }

 private:
  static constexpr auto kLargest = static_cast<float>(small_float_value<F>(F.largest));

  bool own_;
  Index width_;
  float scale_;
};

template <SmallFloat F>
CodecDescription plain(std::string id, std::string title, std::string source) {
  TypedCodec<NoParameters> c;
  c.id = std::move(id);
  c.title = std::move(title);
  c.source = std::move(source);
  c.bits = "16";
  c.create = [](const NoParameters&, const CodecContext& context) {
    return std::make_unique<Floats<F>>(context.width());
  };
  return c;
}

template <SmallFloat F>
CodecDescription scalable(std::string id, std::string title, std::string source) {
  TypedCodec<Parameters> c;
  c.id = std::move(id);
  c.title = std::move(title);
  c.source = std::move(source);
  c.bits = "8 (scale token: 8 + 32/d)";
  c.parameters = {field("scale", &Parameters::scale, kCommonScales,
                        "what is stored relative to a float32: nothing, all vectors (to the "
                        "prompt's), or each vector")};
  c.skip_reason = [](const Parameters& p, const StreamShape&, CacheTensor, Index prompt) {
    return no_prompt_scale(p.scale, prompt);
  };
  c.not_rotated = [](const Parameters& p) { return not_rotated(p.scale); };
  c.create = [](const Parameters& p, const CodecContext& context) -> std::unique_ptr<Codec> {
    if (p.scale == CommonScale::kNone) return std::make_unique<Floats<F>>(context.width());
    return std::make_unique<ScaledFloats<F>>(p.scale, context);
  };
  return c;
}

}  // namespace

CodecDescription describe_codec_bf16() {
  return plain<kBFloat16>("bf16", "16-bit floating point, bfloat16",
                          "bfloat16, the upper half of IEEE 754 binary32");
}

CodecDescription describe_codec_fp16() {
  return plain<kBinary16>("fp16", "16-bit floating point, binary16", "IEEE 754-2019, binary16");
}

CodecDescription describe_codec_fp8_e4m3() {
  return scalable<kE4M3>("fp8_e4m3", "8-bit floating point, E4M3 without infinity",
                         "OCP OFP8 1.0, E4M3");
}

CodecDescription describe_codec_fp8_e5m2() {
  return scalable<kE5M2>("fp8_e5m2", "8-bit floating point, E5M2", "OCP OFP8 1.0, E5M2");
}

}  // namespace kvbench
