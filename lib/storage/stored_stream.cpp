#include "storage/stored_stream.hpp"

#include <algorithm>
#include <mutex>

#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kVectorsPerTask = 64;

AlignedDoubles decoded_alone(const Codec& codec, ConstMatrix original,
                             std::map<Index, std::string>& unwritable) {
  AlignedDoubles out(static_cast<std::size_t>(original.rows * original.cols));
  std::mutex mutex;
  parallel_for((original.rows + kVectorsPerTask - 1) / kVectorsPerTask, [&](Index task) {
    const Index first = task * kVectorsPerTask;
    const Index last = std::min(first + kVectorsPerTask, original.rows);
    std::vector<std::byte> code((last - first) * codec.bytes());
    try {
      codec.encode_all({original.row(first), last - first, original.cols, original.stride},
                       code.data());
      codec.decode_all(code.data(),
                       {out.data() + first * original.cols, last - first, original.cols});
      return;
    } catch (const CellError&) {
      // One of them cannot be written: which ones, and why, is found one by one.
    }
    for (Index i = first; i < last; ++i) {
      double* decoded = out.data() + i * original.cols;
      try {
        codec.encode({original.row(i), 1, original.cols}, code.data());
        codec.decode(code.data(), {decoded, 1, original.cols});
      } catch (const CellError& error) {
        std::copy(original.row(i), original.row(i) + original.cols, decoded);
        const std::lock_guard<std::mutex> lock(mutex);
        unwritable.emplace(i, error.what());
      }
    }
  });
  return out;
}

}  // namespace

AlignedGroups::AlignedGroups(const Codec& codec, ConstMatrix original)
    : codec_(codec),
      original_(original),
      is_written_(new std::once_flag[original.rows / codec.group()]) {}

ConstMatrix AlignedGroups::with(Index first) const {
  const Index width = original_.cols;
  std::call_once(has_room_, [&] { decoded_.resize(original_.rows * width); });
  std::call_once(is_written_[first / codec_.group()], [&] {
    std::vector<std::byte> code(codec_.bytes());
    codec_.encode({original_.row(first), codec_.group(), width, original_.stride}, code.data());
    codec_.decode(code.data(), {decoded_.data() + first * width, codec_.group(), width});
  });
  return {decoded_.data(), original_.rows, width};
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
  out.codec = setting.create({original_, prompt_, seed, tensor});
  if (!out.codec) return out;
  out.on_arrival = writes_on_arrival(*out.codec, original_.shape.tokens);
  if (out.codec->group() == 1) {
    out.decoded = decoded_alone(*out.codec, out.original, out.unwritable);
  } else {
    out.groups = std::make_unique<AlignedGroups>(*out.codec, out.original);
  }
  return out;
}

}  // namespace kvbench
