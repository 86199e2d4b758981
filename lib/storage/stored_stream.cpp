#include "storage/stored_stream.hpp"

#include <algorithm>
#include <mutex>

#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kVectorsPerTask = 64;

// Decoded vectors of a codec that writes vectors alone.
void decode_alone(StoredTensor& tensor) {
  const ConstMatrix written = tensor.written();
  const Codec& codec = *tensor.codec;
  tensor.decoded.resize(written.rows * written.cols);
  std::mutex mutex;
  parallel_for((written.rows + kVectorsPerTask - 1) / kVectorsPerTask, [&](Index task) {
    const Index first = task * kVectorsPerTask;
    const Index last = std::min(first + kVectorsPerTask, written.rows);
    std::vector<std::byte> code((last - first) * codec.bytes());
    const auto rows_from = [&](Index i, Index count) {
      return MutableMatrix(tensor.decoded.data() + i * written.cols, count, written.cols);
    };
    try {
      codec.encode_all({written.row(first), last - first, written.cols, written.stride},
                       code.data());
      codec.decode_all(code.data(), rows_from(first, last - first));
      tensor.restore(first, rows_from(first, last - first));
      return;
    } catch (const CellError&) {
      // One of them cannot be written: which ones, and why, is found one by one.
    }
    for (Index i = first; i < last; ++i) {
      try {
        codec.encode({written.row(i), 1, written.cols}, code.data());
        codec.decode(code.data(), rows_from(i, 1));
        tensor.restore(i, rows_from(i, 1));
      } catch (const CellError& error) {
        std::copy_n(tensor.original.row(i), written.cols, rows_from(i, 1).data);
        const std::lock_guard<std::mutex> lock(mutex);
        tensor.unwritable.emplace(i, error.what());
      }
    }
  });
}

}  // namespace

AlignedGroups::AlignedGroups(const Codec& codec, ConstMatrix written,
                             const KeysByPosition* by_position)
    : codec_(codec),
      written_(written),
      by_position_(by_position),
      is_written_(new std::once_flag[written.rows / codec.group()]) {}

ConstMatrix AlignedGroups::with(Index first) const {
  const Index width = written_.cols;
  std::call_once(has_room_, [&] { decoded_.resize(written_.rows * width); });
  std::call_once(is_written_[first / codec_.group()], [&] {
    std::vector<std::byte> code(codec_.bytes());
    const MutableMatrix group(decoded_.data() + first * width, codec_.group(), width);
    codec_.encode({written_.row(first), codec_.group(), width, written_.stride}, code.data());
    codec_.decode(code.data(), group);
    if (by_position_ != nullptr) by_position_->restore(first, group);
  });
  return {decoded_.data(), written_.rows, width};
}

StoredStream::StoredStream(const Stream& stream, Index prompt, const Storage& storage,
                           std::uint32_t seed)
    : original_(stream),
      prompt_(prompt),
      keys_(make(CacheTensor::kKeys, storage.keys, seed)),
      values_(make(CacheTensor::kValues, storage.values, seed)),
      held_(stream) {
  const StreamShape& shape = stream.shape;
  if (keys_.is_decoded_throughout()) {
    held_.keys = {keys_.decoded.data(), shape.tokens, shape.d};
  }
  if (values_.is_decoded_throughout()) {
    held_.values = {values_.decoded.data(), shape.tokens, shape.dv};
  } else if (!values_.is_float() && values_.codec->group() == 1) {
    both_values_.reserve(2 * values_.decoded.size());
    for (Index j = 0; j < shape.tokens; ++j) {
      both_values_.insert(both_values_.end(), stream.values.row(j),
                          stream.values.row(j) + shape.dv);
    }
    both_values_.insert(both_values_.end(), values_.decoded.begin(), values_.decoded.end());
    held_.values = {both_values_.data(), 2 * shape.tokens, shape.dv};
  }
}

StoredTensor StoredStream::make(CacheTensor tensor, const CodecSetting& setting,
                                std::uint32_t seed) const {
  StoredTensor out;
  out.original = tensor == CacheTensor::kKeys ? original_.keys : original_.values;
  if (setting.is_float()) return out;
  if (is_by_position(setting.params)) {
    out.by_position = std::make_unique<KeysByPosition>(original_, setting.params);
  }
  const Stream& seen = out.by_position ? out.by_position->stream() : original_;
  out.codec = setting.create({seen, prompt_, seed, tensor});
  out.on_arrival = writes_on_arrival(*out.codec, original_.shape.tokens);
  if (out.codec->group() == 1) {
    decode_alone(out);
  } else {
    out.groups = std::make_unique<AlignedGroups>(*out.codec, out.written(), out.by_position.get());
  }
  return out;
}

}  // namespace kvbench
