// Groups of numbers as whole numbers of b bits (uniform_quantizer.hpp), and KIVI, which is such a
// codec with a window of unquantised vectors.
//
// Sources: KIVI, Liu et al., arXiv 2402.02750, and jy-yuan/KIVI@876b4d2 (models/llama_kivi.py,
// quant/new_pack.py). As in that code, of `held` tokens, the answered row's included, the oldest
// residual * floor((held - 1) / residual) keys are stored and held - 1 - residual values.
// Its quant_and_pack_kcache and quant_and_pack_vcache, run once in double precision on the shipped
// dump's 18,432 keys and values (2, 4 and 8 bits, groups of 32), give the numbers of `scales`
// exact, every bit. Differences: it divides by 0 where a group is constant, here such a group comes
// back as its minimum; it computes in binary16, with which a quarter of the numbers differ, by one
// step at most and roundings of the scale; 3 bits are not among its choices.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "storage/codec.hpp"
#include "storage/number_blocks.hpp"
#include "storage/uniform_quantizer.hpp"

namespace kvbench {
namespace {

const char* const kScalesDoc =
    "how scales and minima are stored: binary16 (16 bits), or as computed (64 bits)";

// Which numbers of a block share a scale.
struct Groups {
  Index width;
  Index numbers;     // in a group
  bool per_channel;  // a group is `numbers` tokens of a channel, else `numbers` channels of a token

  Index tokens() const { return per_channel ? numbers : 1; }
  Index count() const { return per_channel ? width : width / numbers; }
};

// A block: the scales of its groups, then the codes, group by group.
class GroupedIntegers : public Codec {
 public:
  GroupedIntegers(const UniformQuantizer& quantizer, const Groups& groups)
      : quantizer_(quantizer), groups_(groups) {}

  Index group() const override { return groups_.tokens(); }
  Index bytes() const override {
    return codes_at() + packed_bytes(groups_.count() * groups_.numbers, quantizer_.bits);
  }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    std::vector<double> channels;
    const double* numbers = vectors.data;
    if (groups_.per_channel) {
      channels.resize(groups_.width * groups_.numbers);
      for (Index t = 0; t < groups_.numbers; ++t) {
        for (Index k = 0; k < groups_.width; ++k) {
          channels[k * groups_.numbers + t] = vectors(t, k);
        }
      }
      numbers = channels.data();
    }
    BitWriter codes(code + codes_at());
    for (Index g = 0; g < groups_.count(); ++g) {
      quantizer_.encode(numbers + g * groups_.numbers, groups_.numbers,
                        code + g * quantizer_.scale_bytes(), codes);
    }
    codes.finish();
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    std::vector<double> channels;
    double* numbers = vectors.data;
    if (groups_.per_channel) {
      channels.resize(groups_.width * groups_.numbers);
      numbers = channels.data();
    }
    BitReader codes(code + codes_at());
    for (Index g = 0; g < groups_.count(); ++g) {
      quantizer_.decode(code + g * quantizer_.scale_bytes(), codes, numbers + g * groups_.numbers,
                        groups_.numbers);
    }
    if (!groups_.per_channel) return;
    for (Index t = 0; t < groups_.numbers; ++t) {
      for (Index k = 0; k < groups_.width; ++k) {
        vectors(t, k) = channels[k * groups_.numbers + t];
      }
    }
  }

 private:
  Index codes_at() const { return groups_.count() * quantizer_.scale_bytes(); }

  UniformQuantizer quantizer_;
  Groups groups_;
};

struct IntegerParameters {
  Index bits = 4;
  bool symmetric = false;
  bool per_channel = false;
  std::optional<Index> group = 32;
  Scales scales = Scales::kHalf;
};

Groups groups_of(const IntegerParameters& p, Index width) {
  return {width, p.group.value_or(width), p.per_channel};
}

struct TokenParameters {
  Index bits = 4;
};

struct KiviParameters {
  Index bits = 2;
  Index group = 32;
  Index residual = 128;
  Scales scales = Scales::kHalf;
  bool prompt_alone = false;
};

class Kivi final : public GroupedIntegers {
 public:
  Kivi(const KiviParameters& p, const CodecContext& context)
      : GroupedIntegers({.bits = static_cast<int>(p.bits), .scales = p.scales},
                        {context.width(), p.group, context.tensor == CacheTensor::kKeys}),
        of_keys_(context.tensor == CacheTensor::kKeys),
        residual_(p.residual),
        prompt_alone_(p.prompt_alone) {}

  Index written(Index held, Index of_prompt) const override {
    const Index seen = std::max<Index>(held - 1, 0);
    const Index in_reach = prompt_alone_ ? std::min(seen, of_prompt) : seen;
    return of_keys_ ? in_reach / residual_ * residual_ : std::max<Index>(in_reach - residual_, 0);
  }
  bool once() const override { return prompt_alone_; }

 private:
  bool of_keys_;
  Index residual_;
  bool prompt_alone_;
};

using Clause = std::optional<std::pair<std::string, std::string>>;

std::string group_remedy(const StreamShape& shape, CacheTensor tensor) {
  return fmt::format("choose a group that divides {}", width_of(shape, tensor));
}

}  // namespace

CodecDescription describe_codec_int() {
  TypedCodec<IntegerParameters> c;
  using P = IntegerParameters;
  c.id = "int";
  c.title = "whole numbers of b bits, a scale per group";
  c.source = "rounding to nearest, as optimum-quanto";
  c.bits = "b + 32/group (symmetric: b + 16/group; scales exact: b + 128/group and b + 64/group)";
  c.parameters = {
      field("bits", &P::bits, "bits of a code").at_least(2).at_most(8),
      field("form", &P::symmetric, Choices<bool>{{"asymmetric", false}, {"symmetric", true}},
            "a scale and a minimum, or a scale about 0"),
      field("per", &P::per_channel, Choices<bool>{{"token", false}, {"channel", true}},
            "what shares a scale: `group` channels of a token, or `group` tokens of a channel"),
      field("group", &P::group, "numbers that share a scale; all: those of a token")
          .at_least(1)
          .or_word("all"),
      field("scales", &P::scales, kScaleChoices, kScalesDoc)};
  c.validate = [](const P& p) -> Clause {
    if (!p.per_channel || p.group) return std::nullopt;
    return std::pair("group", "must be a number of tokens with per channel");
  };
  c.skip_reason = [](const P& p, const StreamShape& shape, CacheTensor tensor, Index) {
    const Index block = p.per_channel || !p.group ? 1 : *p.group;
    return uneven_blocks(shape, tensor, block, group_remedy(shape, tensor));
  };
  c.create = [](const P& p, const CodecContext& context) {
    const UniformQuantizer quantizer{
        .bits = static_cast<int>(p.bits), .symmetric = p.symmetric, .scales = p.scales};
    return std::make_unique<GroupedIntegers>(quantizer, groups_of(p, context.width()));
  };
  return c;
}

CodecDescription describe_codec_token() {
  TypedCodec<TokenParameters> c;
  c.id = "token";
  c.title = "whole numbers of b bits, a scale and a minimum per token";
  c.source = "rounding to nearest, asymmetric (RTN)";
  c.bits = "b + 32/d";
  c.parameters = {field("bits", &TokenParameters::bits, "bits of a code").at_least(2).at_most(8)};
  c.create = [](const TokenParameters& p, const CodecContext& context) {
    const Index width = context.width();
    return std::make_unique<GroupedIntegers>(UniformQuantizer{.bits = static_cast<int>(p.bits)},
                                             Groups{width, width, false});
  };
  return c;
}

CodecDescription describe_codec_kivi() {
  TypedCodec<KiviParameters> c;
  using P = KiviParameters;
  c.id = "kivi";
  c.title = "keys per channel, values per token, the newest unquantised";
  c.source = "KIVI (Liu et al.)";
  c.bits = "b + 32/group (scales exact: b + 128/group)";
  c.parameters = {
      field("bits", &P::bits, "bits of the code of a number: 2, 3, 4 or 8").at_least(2).at_most(8),
      field("group", &P::group,
            "numbers that share a scale and a minimum: of keys as many tokens of a channel, of "
            "values as many channels of a token")
          .at_least(1),
      field("residual", &P::residual,
            "newest tokens, which are held unquantised; keys are quantised that many at a time, "
            "values one by one; a multiple of group")
          .at_least(1),
      field("scales", &P::scales, kScaleChoices, kScalesDoc),
      field(
          "span", &P::prompt_alone, Choices<bool>{{"all", false}, {"prompt", true}},
          "tokens that are ever written as codes: all, or those of the prompt alone, as values in "
          "QJL's release")};
  c.validate = [](const P& p) -> Clause {
    if (p.bits > 4 && p.bits != 8) {
      return std::pair("bits", fmt::format("must be 2, 3, 4 or 8, got {}", p.bits));
    }
    if (p.residual % p.group == 0) return std::nullopt;
    return std::pair("residual",
                     fmt::format("must be a multiple of group, {}, got {}", p.group, p.residual));
  };
  c.skip_reason = [](const P& p, const StreamShape& shape, CacheTensor tensor, Index) {
    const Index block = tensor == CacheTensor::kKeys ? 1 : p.group;
    return uneven_blocks(shape, tensor, block, group_remedy(shape, tensor));
  };
  c.create = [](const P& p, const CodecContext& context) {
    return std::make_unique<Kivi>(p, context);
  };
  return c;
}

}  // namespace kvbench
