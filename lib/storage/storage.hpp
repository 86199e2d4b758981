// How a cell's cache is written: a codec for the keys, one for the values, or none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "sketch/sketch.hpp"
#include "storage/codec.hpp"

namespace kvbench {

// A codec with its parameters.
struct CodecSetting {
  const CodecDescription* codec = nullptr;  // null: vectors are held unquantised
  Params params;

  bool is_float() const { return codec == nullptr; }
  std::unique_ptr<Codec> create(const CodecContext& context) const;  // null: float
  bool operator==(const CodecSetting&) const = default;
};

struct LayerStorages;

struct Storage {
  CodecSetting keys;
  CodecSetting values;
  // Set: a storage that differs by layer; keys and values are those of one layer (at_layer), float
  // before that.
  std::shared_ptr<const LayerStorages> by_layer = nullptr;

  const CodecSetting& of(CacheTensor tensor) const {
    return tensor == CacheTensor::kKeys ? keys : values;
  }
  // Whether the seed matters, at any layer.
  bool is_randomised() const;
  bool operator==(const Storage& other) const;
};

// Storages of a model's layers: each of `some` is that of its layers, which no other has.
struct LayerStorages {
  struct Some {
    std::vector<int> layers;  // ascending, not empty
    Storage storage;

    bool operator==(const Some&) const = default;
  };
  std::vector<Some> some;
  std::optional<Storage> others;  // storage of all other layers

  bool operator==(const LayerStorages&) const = default;
};

// `storage` as cells of a layer have it: itself unless it differs by layer. Null where it has
// nothing for that layer.
std::shared_ptr<const Storage> at_layer(const std::shared_ptr<const Storage>& storage, int layer);

// Calls visit() for the codecs of keys and values, of every layer's storage.
void each_setting(const Storage& storage, const std::function<void(const CodecSetting&)>& visit);
// The storage with these changed.
Storage with_settings(Storage storage, const std::function<void(CodecSetting&)>& change);

// "K q8_0 V kivi bits=4": its text in a label; parameters that differ from their defaults, a file
// by the first eight digits of its fingerprint. By
// layer: "layers 0-1,5 K q8_0 V q8_0, others K q4_0 V q4_0".
std::string storage_text(const Storage& storage);

// Bytes that a storage takes, as shape and prompt decide.
class StorageLayout {
 public:
  // `storage` null: every number takes `element_bytes`.
  StorageLayout(const Storage* storage, const StreamShape& shape, Index prompt, int element_bytes);

  // Bytes of `kept` vectors, of which `written` went through a codec, and of bookkeeping.
  Index bytes(const KeptCounts& kept, const KeptCounts& written) const;
  // Bytes of `numbers` of the held keys, which take what a number of the `keys` takes on average,
  // of which `written` went through a codec.
  Index key_numbers_bytes(Index numbers, Index keys, Index written) const;
  // The most at a row while a cache of different tokens grows to `kept` from what was held of the
  // prompt. Keys and values are counted at the same row: codecs write them at different ones.
  Index most_bytes(const KeptCounts& kept, const KeptCounts& of_prompt) const;
  // Whether each vector is written as it comes, so that no order of the held tokens matters.
  bool on_arrival() const;
  // A larger cache may take no more bytes than a smaller one, because more of it went through a
  // codec: by how many tokens it can be larger; 0: it always takes more.
  Index reach() const;
  // Bytes kept once besides them.
  Index shared_bytes() const;
  // Vectors written at a time; 1: float too.
  Index group(CacheTensor tensor) const;

 private:
  struct Part {
    std::unique_ptr<Codec> codec;  // null: float
    Index width = 0;

    Index bytes(Index vectors, Index written, int element_bytes) const;
    // When `rows` rows were decoded: a vector came with each, up to `vectors`.
    Index bytes_after(Index rows, Index vectors, Index of_prompt, int element_bytes) const;
    double written_bytes(int element_bytes) const;  // bytes of a vector
    Index most_waiting(Index tokens) const;         // vectors that are held unquantised
  };

  Part keys_, values_;
  StreamShape shape_;
  int element_bytes_;
};

// Whether a codec writes each of up to `tokens` held vectors as it comes.
bool writes_on_arrival(const Codec& codec, Index tokens);

// Why a cell's cache cannot be written so: its codecs do not fit the stream, or the algorithm does
// not go with them. The cell is skipped with that reason.
std::optional<std::string> reason_to_skip(const Storage& storage,
                                          const AlgorithmDescription& algorithm,
                                          const Params& params, const StreamShape& shape,
                                          Index prompt);

}  // namespace kvbench
