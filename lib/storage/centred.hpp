// Any codec of vectors less the mean of the prompt's: x -> x - m before it is encoded, + m after it
// is decoded. An offset that all vectors share, as a bias of the model makes one, then takes no
// part of a codec's range.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "storage/codec.hpp"

namespace kvbench {

// The parameter besides a codec's own: none or mean.
inline constexpr const char* kCentreName = "centre";
Parameter centre_parameter();
// Whether a checked assignment asks for it.
bool is_centred(const Params& params);

// Why vectors cannot be centred, with the remedy: the prompt is empty.
std::optional<std::string> cannot_centre(Index prompt);

// `codec` of vectors less m: the mean of the prompt's keys or values of `context`, rounded to
// float32 and counted once per KV head. Throws CellError where it is beyond the range of float32.
std::unique_ptr<Codec> centred(std::unique_ptr<Codec> codec, const CodecContext& context);

}  // namespace kvbench
