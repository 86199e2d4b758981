#include "storage/keys_by_position.hpp"

#include <algorithm>

#include "core/rotation.hpp"
#include "storage/centred.hpp"

namespace kvbench {
namespace {

void turn_rows(const Rope& rope, double sign, Index first, MutableMatrix rows) {
  Turn turn(rope);
  std::vector<double> turned(rows.cols);
  for (Index i = 0; i < rows.rows; ++i) {
    turn.set(sign * (first + i));
    turn.apply(rows.row(i), rows.cols, turned.data());
    std::copy(turned.begin(), turned.end(), rows.row(i));
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

bool is_by_position(const Params& params) { return is_before_rope(params) || is_less_bias(params); }

KeysByPosition::KeysByPosition(const Stream& stream, const Params& params)
    : before_rope_(is_before_rope(params)),
      bias_(is_less_bias(params) ? stream.key_bias : std::vector<double>()),
      keys_(stream.keys.rows * stream.keys.cols),
      stream_(stream) {
  const MutableMatrix keys(keys_.data(), stream.keys.rows, stream.keys.cols);
  for (Index i = 0; i < keys.rows; ++i) std::copy_n(stream.keys.row(i), keys.cols, keys.row(i));
  if (before_rope_) turn_rows(*stream.shape.rope, -1.0, 0, keys);
  add_bias(-1.0, keys, 0);
  stream_.keys = {keys_.data(), keys.rows, keys.cols};
}

void KeysByPosition::restore(Index first, MutableMatrix keys) const {
  add_bias(1.0, keys, first);
  if (before_rope_) turn_rows(*stream_.shape.rope, 1.0, first, keys);
}

void KeysByPosition::add_bias(double sign, MutableMatrix keys, Index first) const {
  if (bias_.empty()) return;
  Turn turn(*stream_.shape.rope);
  std::vector<double> turned(bias_.size());
  for (Index i = 0; i < keys.rows; ++i) {
    if (!before_rope_) turn.set(first + i);
    turn.apply(bias_.data(), keys.cols, turned.data());
    double* row = keys.row(i);
    for (std::size_t k = 0; k < turned.size(); ++k) row[k] += sign * turned[k];
  }
}

}  // namespace kvbench
