// Any codec of vectors less the mean of the prompt's: x -> x - m before it is encoded, + m after it
// is decoded. An offset that all vectors share, as a bias of the model makes one, then takes no
// part of a codec's range. The bias itself is subtracted position by position
// (keys_by_position.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "storage/codec.hpp"

namespace kvbench {

// The parameter besides a codec's own: none, mean or bias.
inline constexpr const char* kCentreName = "centre";
Parameter centre_parameter();
// Whether a checked assignment asks for vectors less their mean, or for keys less the model's bias.
bool is_less_mean(const Params& params);
bool is_less_bias(const Params& params);

// Why vectors cannot be centred as asked for, with the remedy.
std::optional<std::string> cannot_centre(const Params& params, const StreamShape& shape,
                                         CacheTensor tensor, Index prompt);

// `codec` of vectors less m: the mean of the prompt's keys or values of `context`, rounded to
// float32 and counted once per KV head. Throws CellError where it is beyond the range of float32.
std::unique_ptr<Codec> centred(std::unique_ptr<Codec> codec, const CodecContext& context);

}  // namespace kvbench
