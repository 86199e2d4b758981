// Keys as they were before RoPE turned them to their positions: `rope: before` of a codec.
// Positions belong to tokens, so the stream is turned (stored_stream.hpp), not a codec wrapped.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/stream.hpp"
#include "numerics/aligned.hpp"
#include "storage/codec.hpp"

namespace kvbench {

// The parameter besides a codec's own: after or before.
inline constexpr const char* kRopeName = "rope";
Parameter rope_parameter();
// Whether a checked assignment asks for keys before RoPE.
bool is_before_rope(const Params& params);

// Why such vectors cannot be written before RoPE, with the remedy.
std::optional<std::string> cannot_undo_rope(const StreamShape& shape, CacheTensor tensor);

// A stream's keys before RoPE, in double precision.
class BeforeRope {
 public:
  // Needs stream.shape.rope.
  explicit BeforeRope(const Stream& stream);

  // The stream with these keys.
  const Stream& stream() const { return stream_; }
  // Row i of `keys` to the position first + i.
  void redo(Index first, MutableMatrix keys) const;

 private:
  AlignedDoubles keys_;  // [n, d]
  Stream stream_;
};

}  // namespace kvbench
