// Keys whose change before they are encoded depends on their position: before RoPE (`rope: before`
// of a codec), or less the model's bias as RoPE turned it (`centre: bias`). Positions belong to
// tokens, so the stream is changed (stored_stream.hpp), not a codec wrapped.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

// Whether a checked assignment asks for either.
bool is_by_position(const Params& params);

// A stream's keys as a codec sees them, in double precision.
class KeysByPosition {
 public:
  // Needs stream.shape.rope; the stream's key_bias if `params` ask for keys less it.
  KeysByPosition(const Stream& stream, const Params& params);

  // The stream with these keys.
  const Stream& stream() const { return stream_; }
  // Row i of `keys` as attention reads it at the position first + i.
  void restore(Index first, MutableMatrix keys) const;

 private:
  // Adds `sign` times the bias, turned if `keys` are.
  void add_bias(double sign, MutableMatrix keys, Index first) const;

  bool before_rope_;
  std::vector<double> bias_;  // [d]; empty: keys keep theirs
  AlignedDoubles keys_;       // [n, d]
  Stream stream_;
};

}  // namespace kvbench
