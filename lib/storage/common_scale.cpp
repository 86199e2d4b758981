#include "storage/common_scale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "storage/stored_norm.hpp"
#include "system/error.hpp"

namespace kvbench {

float scale_to(ConstMatrix vectors, float largest) {
  double size = 0.0;
  for (Index i = 0; i < vectors.rows; ++i) {
    size = std::max(size, largest_size(vectors.row(i), vectors.cols));
  }
  const float rounded = static_cast<float>(size);
  if (!std::isfinite(rounded)) {
    throw CellError(fmt::format("{} is beyond the range of a float32 scale", size));
  }
  return std::max(rounded / largest, std::numeric_limits<float>::min());
}

float prompt_scale(CommonScale scale, const CodecContext& context, float largest) {
  if (scale != CommonScale::kTensor) return 1.0F;
  ConstMatrix of_prompt =
      context.tensor == CacheTensor::kKeys ? context.stream.keys : context.stream.values;
  of_prompt.rows = std::min(of_prompt.rows, context.prompt);
  return scale_to(of_prompt, largest);
}

std::optional<std::string> not_rotated(CommonScale scale) {
  if (scale != CommonScale::kTensor) return std::nullopt;
  return "must be none with scale tensor, which is measured on the vectors before it; use scale "
         "token";
}

std::optional<std::string> no_prompt_scale(CommonScale scale, Index prompt) {
  if (scale != CommonScale::kTensor || prompt > 0) return std::nullopt;
  return "scale tensor is that of the prompt's tokens, and the prompt has none; choose a longer "
         "prompt or scale token";
}

}  // namespace kvbench
