// Codecs of the registry with parameters as a test writes them down.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/codec.hpp"

namespace kvbench::test {

using Given = std::vector<std::pair<std::string, Value>>;
using Numbers = std::vector<double>;
using Bytes = std::vector<std::byte>;

// The codec of an id; throws std::invalid_argument where there is none.
const CodecDescription& codec_named(const std::string& id);

// A checked assignment, defaults filled in. Throws std::invalid_argument with what is wrong.
Params codec_params(const CodecDescription& codec, const Given& given);

// A codec made for vectors of `width` numbers that are written one after the other: a stream whose
// keys and values they are, `prompt` of them the prompt's (-1: all). With fewer than a vector it is
// of one zero vector.
struct MadeCodec {
  std::unique_ptr<Numbers> numbers;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Codec> codec;
};
MadeCodec made(const std::string& id, const Given& given, Index width, Numbers numbers = {},
               CacheTensor tensor = CacheTensor::kKeys, Index prompt = -1, std::uint32_t seed = 0);

// Blocks one after the other; `numbers` are whole blocks.
Bytes encoded(const Codec& codec, Index width, const Numbers& numbers);
Numbers decoded(const Codec& codec, Index width, const Bytes& bytes);

// The decoded numbers of `numbers`, from which the codec is made.
Numbers round_trip(const std::string& id, const Given& given, Index width, const Numbers& numbers,
                   CacheTensor tensor = CacheTensor::kKeys);

// Why a codec does not write vectors of such a width; empty if it does.
std::string skip_of(const std::string& id, const Given& given, Index width,
                    CacheTensor tensor = CacheTensor::kKeys, Index prompt = 1);

}  // namespace kvbench::test
