#include "codec_support.hpp"

#include <algorithm>
#include <stdexcept>

#include "storage/codec_registry.hpp"

namespace kvbench::test {

const CodecDescription& codec_named(const std::string& id) {
  const CodecDescription* codec = find_codec(id);
  if (codec == nullptr) throw std::invalid_argument("unknown codec " + id);
  return *codec;
}

Params codec_params(const CodecDescription& codec, const Given& given) {
  Params params;
  std::size_t used = 0;
  for (const Parameter& parameter : codec.parameters) {
    const auto found = std::find_if(given.begin(), given.end(), [&](const auto& entry) {
      return entry.first == parameter.name;
    });
    if (found != given.end()) {
      Value value = found->second;
      if (const auto error = check_value(parameter, value)) {
        throw std::invalid_argument(codec.id + " " + parameter.name + " " + *error);
      }
      params.set(parameter.name, value);
      ++used;
    } else if (parameter.default_value) {
      params.set(parameter.name, *parameter.default_value);
    }
  }
  if (used != given.size()) throw std::invalid_argument(codec.id + " has no such parameter");
  if (const auto wrong = codec.validate(params)) {
    throw std::invalid_argument(codec.id + " " + wrong->first + " " + wrong->second);
  }
  return params;
}

MadeCodec made(const std::string& id, const Given& given, Index width, Numbers numbers,
               CacheTensor tensor, Index prompt, std::uint32_t seed) {
  MadeCodec out;
  out.numbers = std::make_unique<Numbers>(std::move(numbers));
  if (out.numbers->empty()) out.numbers->assign(static_cast<std::size_t>(width), 0.0);
  const Index tokens = static_cast<Index>(out.numbers->size()) / width;
  out.stream = std::make_unique<Stream>();
  StreamShape& shape = out.stream->shape;
  shape.tokens = tokens;
  shape.d = shape.dv = width;
  out.stream->keys = out.stream->values = {out.numbers->data(), tokens, width};
  const CodecDescription& codec = codec_named(id);
  const Params params = codec_params(codec, given);
  if (prompt < 0) prompt = tokens;
  if (const auto skip = codec.skip_reason(params, shape, tensor, prompt)) {
    throw std::invalid_argument(*skip);
  }
  out.codec = codec.create(params, {*out.stream, prompt, seed, tensor});
  return out;
}

Bytes encoded(const Codec& codec, Index width, const Numbers& numbers) {
  const Index block = codec.group() * width;
  const Index blocks = std::ssize(numbers) / block;
  if (blocks * block != std::ssize(numbers)) {
    throw std::invalid_argument("the last block is not whole");
  }
  Bytes out(static_cast<std::size_t>(blocks * codec.bytes()));
  for (Index b = 0; b < blocks; ++b) {
    codec.encode({numbers.data() + b * block, codec.group(), width},
                 out.data() + b * codec.bytes());
  }
  return out;
}

Numbers decoded(const Codec& codec, Index width, const Bytes& bytes) {
  const Index block = codec.group() * width;
  const Index blocks = std::ssize(bytes) / codec.bytes();
  Numbers out(static_cast<std::size_t>(blocks * block));
  for (Index b = 0; b < blocks; ++b) {
    codec.decode(bytes.data() + b * codec.bytes(), {out.data() + b * block, codec.group(), width});
  }
  return out;
}

Numbers round_trip(const std::string& id, const Given& given, Index width, const Numbers& numbers,
                   CacheTensor tensor) {
  const MadeCodec of = made(id, given, width, numbers, tensor);
  return decoded(*of.codec, width, encoded(*of.codec, width, numbers));
}

std::string skip_of(const std::string& id, const Given& given, Index width, CacheTensor tensor,
                    Index prompt) {
  StreamShape shape;
  shape.d = shape.dv = width;
  const CodecDescription& codec = codec_named(id);
  return codec.skip_reason(codec_params(codec, given), shape, tensor, prompt).value_or("");
}

}  // namespace kvbench::test
