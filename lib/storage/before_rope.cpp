#include "storage/before_rope.hpp"

#include <algorithm>
#include <vector>

#include "core/rotation.hpp"

namespace kvbench {
namespace {

void turn_rows(const Rope& rope, double sign, Index first, ConstMatrix in, MutableMatrix out) {
  Turn turn(rope);
  std::vector<double> turned(static_cast<std::size_t>(in.cols));
  for (Index i = 0; i < in.rows; ++i) {
    turn.set(sign * static_cast<double>(first + i));
    turn.apply(in.row(i), in.cols, turned.data());
    std::copy(turned.begin(), turned.end(), out.row(i));
  }
}

}  // namespace

Parameter rope_parameter() {
  Parameter out;
  out.name = kRopeName;
  out.kind = Parameter::Kind::kChoice;
  out.doc =
      "before: keys are encoded as they were before RoPE turned them, and turned again after they "
      "are decoded";
  out.choices = {"after", "before"};
  out.default_value = Value{std::string("after")};
  out.is_later = true;
  return out;
}

bool is_before_rope(const Params& params) {
  const Value* rope = params.find(kRopeName);
  return rope != nullptr && std::get<std::string>(*rope) == "before";
}

std::optional<std::string> cannot_undo_rope(const StreamShape& shape, CacheTensor tensor) {
  if (tensor == CacheTensor::kValues) {
    return "rope before is for keys, and RoPE does not turn values; leave rope out";
  }
  if (shape.rope != nullptr) return std::nullopt;
  return "rope before undoes the rotation of keys, but the dump has no RoPE data for this layer; "
         "export the dump with its rope group, or leave rope out";
}

BeforeRope::BeforeRope(const Stream& stream)
    : keys_(static_cast<std::size_t>(stream.keys.rows * stream.keys.cols)), stream_(stream) {
  const MutableMatrix keys(keys_.data(), stream.keys.rows, stream.keys.cols);
  turn_rows(*stream.shape.rope, -1.0, 0, stream.keys, keys);
  stream_.keys = {keys_.data(), stream.keys.rows, stream.keys.cols};
}

void BeforeRope::redo(Index first, MutableMatrix keys) const {
  turn_rows(*stream_.shape.rope, 1.0, first, {keys.data, keys.rows, keys.cols, keys.stride}, keys);
}

}  // namespace kvbench
