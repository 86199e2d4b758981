#include "storage/codec_registry.hpp"

#include <algorithm>
#include <utility>

#include "storage/centred.hpp"
#include "storage/keys_by_position.hpp"
#include "storage/rotated.hpp"

namespace kvbench {
namespace {

Rotation rotation_of(const Params& params) {
  return rotation_named(std::get<std::string>(params.at(kRotateName)));
}

// The codec with the parameters behind its own that say which vectors it sees. StoredStream changes
// the stream for `rope` and a bias; the mean and then `rotate` follow here.
CodecDescription prepared(CodecDescription codec) {
  if (!codec.can_rotate) return codec;
  const CodecDescription alone = codec;
  codec.parameters.insert(codec.parameters.end(), vector_parameters().begin(),
                          vector_parameters().end());
  codec.randomised = [alone](const Params& params) {
    return alone.randomised(params) || is_randomised(rotation_of(params));
  };
  codec.validate = [alone](const Params& params) {
    auto invalid = alone.validate(params);
    const bool is_rotated = rotation_of(params) != Rotation::kNone;
    if (invalid || !(is_rotated || is_less_mean(params))) return invalid;
    if (auto why = alone.not_rotated(params)) {
      invalid = {is_rotated ? kRotateName : kCentreName, std::move(*why)};
    }
    return invalid;
  };
  codec.skip_reason = [alone](const Params& params, const StreamShape& shape, CacheTensor tensor,
                              Index prompt) {
    auto why = alone.skip_reason(params, shape, tensor, prompt);
    if (!why) why = cannot_rotate(rotation_of(params), shape, tensor);
    if (!why && is_before_rope(params)) why = cannot_undo_rope(shape, tensor);
    if (!why) why = cannot_centre(params, shape, tensor, prompt);
    return why;
  };
  codec.create = [alone](const Params& params, const CodecContext& context) {
    auto made = rotated(alone.create(params, context), rotation_of(params), context);
    return is_less_mean(params) ? centred(std::move(made), context) : std::move(made);
  };
  return codec;
}

}  // namespace

// One line per codec, in the order of `kvbench list storage`: describe_codec_<id>() is defined in
// the file of its family.
#define KVBENCH_CODECS(CODEC) \
  CODEC(bf16)                 \
  CODEC(fp16)                 \
  CODEC(fp8_e4m3)             \
  CODEC(fp8_e5m2)             \
  CODEC(q8_0)                 \
  CODEC(q5_0)                 \
  CODEC(q5_1)                 \
  CODEC(q4_0)                 \
  CODEC(q4_1)                 \
  CODEC(mxfp4)                \
  CODEC(nvfp4)                \
  CODEC(int)                  \
  CODEC(kivi)                 \
  CODEC(token)                \
  CODEC(hqq)                  \
  CODEC(turboquant)           \
  CODEC(qjl)                  \
  CODEC(polarquant)           \
  CODEC(oscar)                \
  CODEC(think)

#define KVBENCH_DECLARE(id) CodecDescription describe_codec_##id();
KVBENCH_CODECS(KVBENCH_DECLARE)
#undef KVBENCH_DECLARE

const std::vector<CodecDescription>& all_codecs() {
#define KVBENCH_DESCRIBE(id) prepared(describe_codec_##id()),
  static const std::vector<CodecDescription> codecs = {KVBENCH_CODECS(KVBENCH_DESCRIBE)};
#undef KVBENCH_DESCRIBE
  return codecs;
}

const std::vector<Parameter>& vector_parameters() {
  static const std::vector<Parameter> parameters = {rotate_parameter(), centre_parameter(),
                                                    rope_parameter()};
  return parameters;
}

const CodecDescription* find_codec(const std::string& id) {
  const auto& codecs = all_codecs();
  const auto found = std::find_if(codecs.begin(), codecs.end(),
                                  [&](const CodecDescription& codec) { return codec.id == id; });
  return found == codecs.end() ? nullptr : &*found;
}

}  // namespace kvbench
