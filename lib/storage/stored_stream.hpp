// What the codecs of a storage make of a stream's keys and values: the part that cells share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/aligned.hpp"
#include "core/stream.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// One tensor. Vectors that are written alone have one decoded form each, whatever a cell holds
// besides; groups depend on what is held (stored_cache.hpp).
struct StoredTensor {
  ConstMatrix original;          // [n, width]
  std::unique_ptr<Codec> codec;  // null: held as it came
  bool on_arrival = true;        // every vector is written as it comes
  AlignedDoubles decoded;        // [n, width], of a codec that writes vectors alone; else empty
  // Vectors that this codec cannot write, and why; they stand in `decoded` as they came.
  std::map<Index, std::string> unwritable;

  bool is_float() const { return codec == nullptr; }
  // Every held vector is what stands in `decoded`.
  bool is_decoded_throughout() const { return !is_float() && on_arrival && codec->group() == 1; }
};

class StoredStream {
 public:
  // `stream` must live as long.
  StoredStream(const Stream& stream, Index prompt, const Storage& storage, std::uint32_t seed);

  const Stream& original() const { return original_; }
  Index prompt() const { return prompt_; }
  const StoredTensor& keys() const { return keys_; }
  const StoredTensor& values() const { return values_; }

  // The stream with decoded keys, where every held key is one of them; else with its own. Of its
  // values, row j is the value of token j as it came, row n + j as it was decoded; where every held
  // value is decoded or none is, there are n rows, of these.
  const Stream& held() const { return held_; }

 private:
  StoredTensor make(CacheTensor tensor, const CodecSetting& setting, std::uint32_t seed) const;

  const Stream& original_;
  Index prompt_;
  StoredTensor keys_;
  StoredTensor values_;
  AlignedDoubles both_values_;  // [2 n, dv]
  Stream held_;
};

}  // namespace kvbench
