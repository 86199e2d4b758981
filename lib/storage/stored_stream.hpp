// A stream's keys and values after the codecs of a storage: the part that cells share.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/stream.hpp"
#include "numerics/aligned.hpp"
#include "storage/keys_by_position.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// Groups of tokens that follow each other from a multiple of their number on, as a codec gives them
// back: each is written once, by the first cell that holds it, for all that hold it so. Safe from
// several threads.
class AlignedGroups {
 public:
  // All must live as long. `written` [n, width]: what the codec writes, changed keys if
  // `by_position` is not null.
  AlignedGroups(const Codec& codec, ConstMatrix written, const KeysByPosition* by_position);

  // [n, width]: rows of groups that were written stay, the others have no meaning. Throws CellError
  // where the codec cannot write the group that begins with token `first`.
  ConstMatrix with(Index first) const;

 private:
  const Codec& codec_;
  const ConstMatrix written_;
  const KeysByPosition* by_position_;
  const std::unique_ptr<std::once_flag[]> is_written_;  // NOLINT(modernize-avoid-c-arrays)
  mutable std::once_flag has_room_;
  mutable AlignedDoubles decoded_;
};

// One tensor. Vectors that are written alone have one decoded form each, whatever a cell holds
// besides; groups depend on what is held (stored_cache.hpp).
struct StoredTensor {
  ConstMatrix original;                         // [n, width]
  std::unique_ptr<KeysByPosition> by_position;  // null: the codec sees the original
  std::unique_ptr<Codec> codec;                 // null: unquantised
  bool on_arrival = true;                       // every vector is written as it comes
  AlignedDoubles decoded;  // [n, width], of a codec that writes vectors alone; else empty
  // Vectors that this codec cannot write, and why; `decoded` has them unquantised.
  std::map<Index, std::string> unwritable;
  std::unique_ptr<AlignedGroups> groups;  // groups of a codec that writes groups; else null

  bool is_float() const { return codec == nullptr; }
  // [n, width]: what the codec writes.
  ConstMatrix written() const { return by_position ? by_position->stream().keys : original; }
  // Turns decoded vectors, of the tokens from `first` on, into what attention reads.
  void restore(Index first, MutableMatrix vectors) const {
    if (by_position) by_position->restore(first, vectors);
  }
  // Every held vector is the one in `decoded`.
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

  // The stream with decoded keys, where every held key is one of them; else with its own. Row j
  // of its values is the unquantised value of token j, row n + j the decoded one. If every held
  // value is decoded, or none is, there are only these n rows.
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
