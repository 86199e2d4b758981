// Codecs that cut a vector into blocks of consecutive numbers, each encoded by itself.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "storage/codec.hpp"

namespace kvbench {

// Block: kNumbers in kBytes, by static void encode(const double* x, std::byte* code) and
// decode(const std::byte* code, double* x).
template <class Block>
class NumberBlocks final : public Codec {
 public:
  explicit NumberBlocks(Index width) : blocks_(width / Block::kNumbers) {}

  Index bytes() const override { return blocks_ * Block::kBytes; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    for (Index b = 0; b < blocks_; ++b) {
      Block::encode(vectors.data + b * Block::kNumbers, code + b * Block::kBytes);
    }
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    for (Index b = 0; b < blocks_; ++b) {
      Block::decode(code + b * Block::kBytes, vectors.data + b * Block::kNumbers);
    }
  }

 private:
  Index blocks_;
};

// The remedy where the size of blocks is the format's.
inline constexpr const char* kWithoutBlocks =
    "choose a codec without blocks, such as token or int with another group";

// Why vectors cannot be cut into blocks of `numbers`; `remedy` is what to do.
inline std::optional<std::string> uneven_blocks(const StreamShape& shape, CacheTensor tensor,
                                                Index numbers, const std::string& remedy) {
  const Index width = width_of(shape, tensor);
  if (width % numbers == 0) return std::nullopt;
  return fmt::format("vectors of {} numbers are not whole groups of {}; {}", width, numbers,
                     remedy);
}

}  // namespace kvbench
