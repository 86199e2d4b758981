// A float32 scale that numbers of few bits are relative to: of all vectors of a KV head, or of
// each.
#pragma once

#include <optional>
#include <string>

#include "storage/codec.hpp"

namespace kvbench {

enum class CommonScale {
  kNone,
  // One scale of all vectors: from the prompt's, frozen when it ends, so that it is known when the
  // first vector is written. Larger numbers that come later become the format's largest. Counted
  // once per KV head.
  kTensor,
  kToken,  // each vector's own, stored before it: 32 bits
};

inline const Choices<CommonScale> kCommonScales = {
    {"none", CommonScale::kNone}, {"tensor", CommonScale::kTensor}, {"token", CommonScale::kToken}};

inline constexpr Index kScaleBytes = 4;

// The scale with which the largest size of `vectors` becomes `largest`, computed in float32 and at
// least the smallest normal number. Throws CellError where it is infinite.
float scale_to(ConstMatrix vectors, float largest);
// The same of the prompt's keys or values. It is 1 where the scale is not the tensor's.
float prompt_scale(CommonScale scale, const CodecContext& context, float largest);

// CodecFunctions::not_rotated.
std::optional<std::string> not_rotated(CommonScale scale);

// Why a tensor lacks a scale: the prompt is empty.
std::optional<std::string> no_prompt_scale(CommonScale scale, Index prompt);

}  // namespace kvbench
