// polarquant: two methods of one name that store angles and radii.
//
// Sources: semantics han: PolarQuant, Han et al., arXiv 2502.02617 (no code of theirs was found).
// A vector is rotated and cut into blocks of 16. Level 1 has the angles of neighbouring numbers,
// in [0, 2 pi), and their radii; level l = 2, 3, 4 the angles of neighbouring radii of the level
// before, in [0, pi / 2]. A level-1 angle has 4 bits, the centres of 16 equal arcs; others 2 bits,
// the best points for angles of normal vectors, whose density is sin(2 psi)^(2^(l-1) - 1). The
// block's radius, its norm, is in binary16. The prompt's vectors are stored, later ones are held
// unquantised. The paper's codebooks fitted to the prompt (k-means) are not here. Semantics wu:
// PolarQuant, Wu et al., arXiv 2502.00527, and ericshwu/PolarQuant@7fc65d8
// (models/modeling_llama_polar.py). Keys alone: of a group of tokens each pair of channels
// (c, c + d/2), or (2 c, 2 c + 1) where the model interleaves those that RoPE turns, has angle and
// radius in 2^b equal steps between the group's least and largest; decoded to the middle of a step.
// Where RoPE turns all d channels these are its pairs; where it turns fewer, the code's all the
// same.
// As in that code `residual` keys are stored when the row after the last of them is answered.
// Differences: where all angles or radii of a group are equal it divides by 0, here they come back;
// it computes in the model's precision, here codes are made in double precision from the stored
// minimum and step. Compared with its Python in double precision and scales exact: on 1024 keys of
// layers 0, 1 and 15 of the shipped dump all codes are equal, what is decoded to 1e-14.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "numerics/canonical.hpp"
#include "numerics/canonical_angle.hpp"
#include "storage/angle_codes.hpp"
#include "storage/bit_stream.hpp"
#include "storage/little_endian.hpp"
#include "storage/orthogonal_map.hpp"
#include "storage/stored_norm.hpp"
#include "storage/uniform_quantizer.hpp"
#include "storage/vector_rows.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

enum class Semantics { kHan, kWu };

struct Parameters {
  Semantics semantics = Semantics::kHan;
  Index angle_bits = 4;
  Index radius_bits = 4;
  Index group = 128;
  Index residual = 128;
  Scales scales = Scales::kHalf;
};

using Vector = std::vector<double>;

constexpr Index kBlock = 16;
constexpr int kLevels = kAngleLevels;
constexpr int kBlockBits = 16 + 8 * kArcBits + 7 * kAngleBits;
constexpr Index kTogether = 32;  // vectors, side by side

// A block is a number of kBlockBits: in its lowest bits the radius, then level by level the codes.
constexpr int angles_at(int level) { return static_cast<int>(kBlock) >> level; }
constexpr int shift_of(int level, int i) {
  int shift = 16;
  for (int before = 1; before < level; ++before) shift += angles_at(before) * angle_bits(before);
  return shift + i * angle_bits(level);
}
static_assert(shift_of(kLevels, 0) + kAngleBits == kBlockBits);

class AnglesOfBlocks final : public Codec {
 public:
  explicit AnglesOfBlocks(const CodecContext& context)
      : d_(context.width()), map_(haar_map(context, "storage/rotation")) {}

  Index bytes() const override { return packed_bytes(d_ / kBlock * kBlockBits, 1); }
  Index shared_bytes() const override {
    return map_.bytes() + 4 * (kLevels - 1) * (Index{1} << kAngleBits);
  }
  Index written(Index held, Index of_prompt) const override { return std::min(held, of_prompt); }
  bool once() const override { return true; }

  void encode(ConstMatrix vectors, std::byte* code) const override { encode_all(vectors, code); }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    decode_all(code, vectors);
  }
  void encode_all(ConstMatrix vectors, std::byte* codes) const override {
    Scratch scratch(d_);
    for (Index first = 0; first < vectors.rows; first += kTogether) {
      const Index count = std::min(kTogether, vectors.rows - first);
      map_.apply_across({vectors.row(first), count, d_, vectors.stride},
                        {scratch.y.row(0), d_, count, kTogether});
      for (Index b = 0; b < blocks(); ++b) {
        encode_blocks(scratch.y.row(b * kBlock), scratch.numbers_of(b), count);
      }
      for (Index t = 0; t < count; ++t, codes += bytes()) {
        BitWriter out(codes);
        for (Index b = 0; b < blocks(); ++b) {
          const std::uint64_t number = scratch.numbers_of(b)[t];
          out.put(static_cast<std::uint32_t>(number), 32);
          out.put(static_cast<std::uint32_t>(number >> 32), kBlockBits - 32);
        }
        out.finish();
      }
    }
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    Scratch scratch(d_);
    for (Index first = 0; first < vectors.rows; first += kTogether) {
      const Index count = std::min(kTogether, vectors.rows - first);
      for (Index t = 0; t < count; ++t, codes += bytes()) {
        BitReader in(codes);
        for (Index b = 0; b < blocks(); ++b) {
          const std::uint64_t low = in.get(32);
          scratch.numbers_of(b)[t] = low | std::uint64_t{in.get(kBlockBits - 32)} << 32;
        }
      }
      for (Index b = 0; b < blocks(); ++b) {
        decode_blocks(scratch.numbers_of(b), scratch.y.row(b * kBlock), count);
      }
      map_.apply_transposed_across({scratch.y.row(0), d_, count, kTogether},
                                   {vectors.row(first), count, d_, vectors.stride});
    }
  }

 private:
  // Numbers of kTogether vectors after the rotation, channel by channel, and the numbers written of
  // their blocks, block by block.
  struct Scratch {
    VectorRows y;
    std::vector<std::uint64_t> numbers;

    explicit Scratch(Index d) : y(d, kTogether), numbers(d / kBlock * kTogether) {}
    std::uint64_t* numbers_of(Index block) { return numbers.data() + block * kTogether; }
  };

  Index blocks() const { return d_ / kBlock; }

  // Encodes one block of each of `count` vectors.
  static void encode_blocks(double* y, std::uint64_t* numbers, Index count) {
    std::array<double, kTogether> factors;
    find_radii(y, count, numbers, factors.data());
    for (Index k = 0; k < kBlock; ++k) {
      double* of_k = y + k * kTogether;
      // Angles are those of any multiple; radii must not vanish or overflow.
      for (Index t = 0; t < count; ++t) of_k[t] *= factors[t];
    }
    std::array<std::uint64_t, kTogether> codes;
    std::array<double, kTogether> radii;
    for (int level = 1; level <= kLevels; ++level) {
      for (int i = 0; i < angles_at(level); ++i) {
        const double* across = y + 2 * i * kTogether;
        const double* up = across + kTogether;
        find_angle_codes(level, across, up, count, codes.data());
        for (Index t = 0; t < count; ++t) {
          const std::size_t each = t;
          numbers[t] |= codes[each] << shift_of(level, i);
          radii[each] = std::sqrt(fused(across[t], across[t], up[t] * up[t]));
        }
        std::copy_n(radii.begin(), count, y + i * kTogether);
      }
    }
  }

  // The radii as they are written, and what brings numbers to where squares are safe.
  static void find_radii(const double* y, Index count, std::uint64_t* numbers, double* factors) {
    std::array<double, kTogether> most{};
    for (Index k = 0; k < kBlock; ++k) {
      for (std::size_t t = 0; t < static_cast<std::size_t>(count); ++t) {
        const double size = std::fabs(y[k * kTogether + t]);
        most[t] = most[t] < size ? size : most[t];
      }
    }
    std::array<double, kTogether> scales;
    std::array<double, kTogether> sums{};
    for (std::size_t t = 0; t < most.size(); ++t) {
      scales[t] = most[t] > 0.0 ? square_safe_factor(most[t]) : 0.0;
    }
    for (Index k = 0; k < kBlock; ++k) {
      for (std::size_t t = 0; t < static_cast<std::size_t>(count); ++t) {
        const double scaled = scales[t] * y[k * kTogether + t];
        sums[t] = fused(scaled, scaled, sums[t]);
      }
    }
    for (std::size_t t = 0; t < static_cast<std::size_t>(count); ++t) {
      const double radius = scales[t] > 0.0 ? std::sqrt(sums[t]) / scales[t] : 0.0;
      std::array<std::byte, kStoredNormBytes> stored{};
      put_norm(radius, stored.data());
      numbers[t] = get_bytes<std::uint16_t>(stored.data());
      factors[t] = radius > 0.0 ? square_safe_factor(radius) : 1.0;
    }
  }

  // Radii are shared out from the block's own to its numbers.
  static void decode_blocks(const std::uint64_t* numbers, double* y, Index count) {
    for (Index t = 0; t < count; ++t) {
      std::array<std::byte, kStoredNormBytes> stored{};
      put_bytes(static_cast<std::uint16_t>(numbers[t]), stored.data());
      y[t] = get_norm(stored.data());
    }
    for (int level = kLevels; level >= 1; --level) {
      const AngleTable& of = angle_table(level);
      const std::uint64_t largest = (std::uint64_t{1} << angle_bits(level)) - 1;
      for (int i = angles_at(level); i-- > 0;) {
        std::array<double, kTogether> radii;
        std::copy_n(y + i * kTogether, count, radii.begin());
        double* across = y + 2 * i * kTogether;
        double* up = across + kTogether;
        for (Index t = 0; t < count; ++t) {
          const std::size_t code = (numbers[t] >> shift_of(level, i)) & largest;
          across[t] = radii[t] * of.cosine[code];
          up[t] = radii[t] * of.sine[code];
        }
      }
    }
  }

  Index d_;
  DenseMap map_;
};

// Numbers in 2^bits equal steps from their least to their largest, decoded to the middle of a step.
struct Steps {
  double low;
  double step;
  double top;  // the largest code

  std::uint32_t code_of(double x) const {
    if (step == 0.0) return 0;
    return static_cast<std::uint32_t>(std::clamp(std::floor((x - low) / step), 0.0, top));
  }
  double value_of(std::uint32_t code) const {
    return step == 0.0 ? low : fused(code + 0.5, step, low);
  }
};

double top_of(Index bits) { return (Index{1} << bits) - 1; }

// A group: of each pair the radii's and the angles' minimum and step; then of each pair the tokens'
// radii and angles.
class AnglesOfPairs final : public Codec {
 public:
  AnglesOfPairs(const Parameters& p, const CodecContext& context)
      : p_(p), pairs_(context.width() / 2) {
    const auto& rope = context.stream.shape.rope;
    interleaved_ = rope != nullptr && rope->interleaved;
  }

  Index group() const override { return p_.group; }
  Index bytes() const override {
    return codes_at() + packed_bytes(pairs_ * p_.group, static_cast<int>(token_bits()));
  }
  Index written(Index held, Index) const override {
    return std::max<Index>(held - 1, 0) / p_.residual * p_.residual;
  }

  void encode(ConstMatrix vectors, std::byte* code) const override {
    BitWriter out(code + codes_at());
    const std::size_t size = p_.group;
    Vector radii(size);
    Vector angles(size);
    for (Index pair = 0; pair < pairs_; ++pair) {
      for (std::size_t t = 0; t < size; ++t) {
        const double* key = vectors.row(t);
        const std::array<double, 2> at = {key[first_of(pair)], key[second_of(pair)]};
        radii[t] = vector_norm(at.data(), 2);
        angles[t] = canonical_angle(at[0], at[1]);
      }
      std::byte* scales = code + pair * 4 * scale_bytes();
      const Steps of_radii = stored_steps(radii, p_.radius_bits, scales);
      const Steps of_angles = stored_steps(angles, p_.angle_bits, scales + 2 * scale_bytes());
      for (std::size_t t = 0; t < size; ++t) {
        out.put(of_radii.code_of(radii[t]), static_cast<int>(p_.radius_bits));
        out.put(of_angles.code_of(angles[t]), static_cast<int>(p_.angle_bits));
      }
    }
    out.finish();
  }

  void decode(const std::byte* code, MutableMatrix vectors) const override {
    BitReader in(code + codes_at());
    for (Index pair = 0; pair < pairs_; ++pair) {
      const std::byte* scales = code + pair * 4 * scale_bytes();
      const Steps of_radii = read_steps(scales, p_.radius_bits);
      const Steps of_angles = read_steps(scales + 2 * scale_bytes(), p_.angle_bits);
      for (Index t = 0; t < p_.group; ++t) {
        const double radius = of_radii.value_of(in.get(static_cast<int>(p_.radius_bits)));
        const double angle = of_angles.value_of(in.get(static_cast<int>(p_.angle_bits)));
        const SineCosine of = canonical_sine_cosine(angle);
        vectors(t, first_of(pair)) = radius * of.cosine;
        vectors(t, second_of(pair)) = radius * of.sine;
      }
    }
  }

 private:
  Index token_bits() const { return p_.radius_bits + p_.angle_bits; }
  Index scale_bytes() const { return bytes_of(p_.scales); }
  Index codes_at() const { return pairs_ * 4 * scale_bytes(); }
  Index first_of(Index pair) const { return interleaved_ ? 2 * pair : pair; }
  Index second_of(Index pair) const { return interleaved_ ? 2 * pair + 1 : pair + pairs_; }

  Steps stored_steps(const Vector& x, Index bits, std::byte* out) const {
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    if (!std::isfinite(*high)) {
      throw CellError("a radius is beyond the range of double precision");
    }
    std::byte* const step = put_scale(*low, p_.scales, out);
    put_scale((*high - *low) / (top_of(bits) + 1.0), p_.scales, step);
    return read_steps(out, bits);
  }
  Steps read_steps(const std::byte* in, Index bits) const {
    const double low = get_scale(p_.scales, in);
    const double step = get_scale(p_.scales, in);
    return {low, step, top_of(bits)};
  }

  Parameters p_;
  Index pairs_;
  bool interleaved_ = false;
};

using Clause = std::optional<std::pair<std::string, std::string>>;

Clause invalid(const Parameters& p) {
  const Parameters defaults;
  if (p.semantics == Semantics::kHan) {
    const auto of_wu = [](const char* name) { return std::pair(name, "is of semantics: wu"); };
    if (p.angle_bits != defaults.angle_bits) return of_wu("angle_bits");
    if (p.radius_bits != defaults.radius_bits) return of_wu("radius_bits");
    if (p.group != defaults.group) return of_wu("group");
    if (p.residual != defaults.residual) return of_wu("residual");
    if (p.scales != defaults.scales) return of_wu("scales");
    return std::nullopt;
  }
  if (p.residual % p.group == 0) return std::nullopt;
  return std::pair("residual",
                   fmt::format("must be a multiple of group, {}, got {}", p.group, p.residual));
}

std::optional<std::string> cannot_write(const Parameters& p, const StreamShape& shape,
                                        CacheTensor tensor, Index) {
  const Index width = width_of(shape, tensor);
  if (p.semantics == Semantics::kHan) {
    if (width % kBlock == 0) return std::nullopt;
    return fmt::format("{} numbers are not a multiple of {}; choose turboquant, which takes any",
                       width, kBlock);
  }
  if (tensor == CacheTensor::kValues) {
    return "semantics wu is for keys; choose semantics han, or another codec for values";
  }
  if (width % 2 == 0) return std::nullopt;
  return fmt::format("{} channels are not pairs; choose turboquant", width);
}

}  // namespace

CodecDescription describe_codec_polarquant() {
  TypedCodec<Parameters> c;
  using P = Parameters;
  c.id = "polarquant";
  c.title = "angles and radii: of a rotated vector's blocks, or of the pairs that RoPE turns";
  c.source = "PolarQuant (Han et al.); PolarQuant (Wu et al.) and its released code";
  c.bits = "han: 3.875; wu: (angle_bits + radius_bits)/2 + 32/group; scales exact: + 128/group";
  c.parameters = {
      field("semantics", &P::semantics, {{"han", Semantics::kHan}, {"wu", Semantics::kWu}},
            "han: blocks of 16 after a rotation, the prompt alone; wu: pairs of channels of keys"),
      field("angle_bits", &P::angle_bits, "wu: bits of an angle").at_least(1).at_most(8),
      field("radius_bits", &P::radius_bits, "wu: bits of a radius").at_least(1).at_most(8),
      field("group", &P::group, "wu: tokens of a pair with the same steps").at_least(1),
      field("residual", &P::residual, "wu: newest tokens, which are held unquantised").at_least(1),
      field("scales", &P::scales, kScaleChoices,
            "wu: how minima and steps are stored: binary16 (16 bits), or as computed (64 bits)")};
  c.randomised = [](const P& p) { return p.semantics == Semantics::kHan; };
  c.validate = invalid;
  c.skip_reason = cannot_write;
  c.create = [](const P& p, const CodecContext& context) -> std::unique_ptr<Codec> {
    if (p.semantics == Semantics::kHan) return std::make_unique<AnglesOfBlocks>(context);
    return std::make_unique<AnglesOfPairs>(p, context);
  };
  return c;
}

}  // namespace kvbench
