#include "storage/storage.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "storage/keys_by_position.hpp"

namespace kvbench {
namespace {

constexpr const char* kTokenByToken = "name a codec that writes tokens singly, such as token";

constexpr std::size_t kShownDigits = 8;  // a fingerprint's in a label

// "0-2,5" of ascending layers.
std::string layers_text(const std::vector<int>& layers) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, last = 0; first < layers.size(); first = ++last) {
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    parts.push_back(first == last ? std::to_string(layers[first])
                                  : fmt::format("{}-{}", layers[first], layers[last]));
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

std::string text_of(const CodecSetting& setting) {
  if (setting.is_float()) return "float";
  std::string text = setting.codec->id;
  for (const Parameter& parameter : setting.codec->parameters) {
    const Value* value = setting.params.find(parameter.name);
    if (value == nullptr || (parameter.default_value && *value == *parameter.default_value)) {
      continue;
    }
    std::string shown = to_string(*value);
    visit_file(*value, [&](const auto& file) {
      if (file.content) shown = file.content->fingerprint.substr(0, kShownDigits);
    });
    text += fmt::format(" {}={}", parameter.name, shown);
  }
  return text;
}

// A stream of this shape without numbers of its own, for what the shape decides.
class ZeroStream {
 public:
  explicit ZeroStream(const StreamShape& shape)
      : zeros_(std::max(shape.d, shape.dv), 0.0),
        one_norms_(shape.wo_v_l1 ? shape.tokens : 0, 0.0) {
    stream_.shape = shape;
    stream_.keys = {zeros_.data(), shape.tokens, shape.d, 0};
    stream_.values = {zeros_.data(), shape.tokens, shape.dv, 0};
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      stream_.queries.emplace_back(zeros_.data(), shape.tokens - shape.first_query, shape.d, 0);
      if (shape.wo_v_l1) stream_.wo_v_l1.push_back(one_norms_.data());
    }
  }

  const Stream& stream() const { return stream_; }

 private:
  std::vector<double> zeros_;
  std::vector<double> one_norms_;
  Stream stream_;
};

const char* name_of(CacheTensor tensor) { return tensor == CacheTensor::kKeys ? "keys" : "values"; }

}  // namespace

std::unique_ptr<Codec> CodecSetting::create(const CodecContext& context) const {
  return is_float() ? nullptr : codec->create(params, context);
}

bool Storage::operator==(const Storage& other) const {
  const bool same_layers =
      by_layer == other.by_layer || (by_layer && other.by_layer && *by_layer == *other.by_layer);
  return same_layers && keys == other.keys && values == other.values;
}

bool Storage::is_randomised() const {
  if (by_layer) {
    const auto draws = [](const LayerStorages::Some& each) { return each.storage.is_randomised(); };
    return std::any_of(by_layer->some.begin(), by_layer->some.end(), draws) ||
           (by_layer->others && by_layer->others->is_randomised());
  }
  return (!keys.is_float() && keys.codec->randomised(keys.params)) ||
         (!values.is_float() && values.codec->randomised(values.params));
}

std::shared_ptr<const Storage> at_layer(const std::shared_ptr<const Storage>& storage, int layer) {
  if (!storage || !storage->by_layer) return storage;
  const auto made = [&](const Storage& of_layer) {
    return std::make_shared<const Storage>(
        Storage{of_layer.keys, of_layer.values, storage->by_layer});
  };
  for (const LayerStorages::Some& each : storage->by_layer->some) {
    if (std::binary_search(each.layers.begin(), each.layers.end(), layer)) {
      return made(each.storage);
    }
  }
  return storage->by_layer->others ? made(*storage->by_layer->others) : nullptr;
}

void each_setting(const Storage& storage, const std::function<void(const CodecSetting&)>& visit) {
  with_settings(storage, [&](const CodecSetting& setting) { visit(setting); });
}

Storage with_settings(Storage storage, const std::function<void(CodecSetting&)>& change) {
  change(storage.keys);
  change(storage.values);
  if (storage.by_layer) {
    LayerStorages layers = *storage.by_layer;
    for (LayerStorages::Some& each : layers.some) {
      each.storage = with_settings(std::move(each.storage), change);
    }
    if (layers.others) layers.others = with_settings(*std::move(layers.others), change);
    storage.by_layer = std::make_shared<const LayerStorages>(std::move(layers));
  }
  return storage;
}

std::string storage_text(const Storage& storage) {
  if (storage.by_layer) {
    std::vector<std::string> parts;
    for (const LayerStorages::Some& each : storage.by_layer->some) {
      parts.push_back(
          fmt::format("layers {} {}", layers_text(each.layers), storage_text(each.storage)));
    }
    if (storage.by_layer->others) {
      parts.push_back("others " + storage_text(*storage.by_layer->others));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }
  return fmt::format("K {} V {}", text_of(storage.keys), text_of(storage.values));
}

StorageLayout::StorageLayout(const Storage* storage, const StreamShape& shape, Index prompt,
                             int element_bytes)
    : shape_(shape), element_bytes_(element_bytes) {
  keys_.width = shape.d;
  values_.width = shape.dv;
  if (storage == nullptr) return;
  const ZeroStream zeros(shape);
  keys_.codec =
      storage->keys.create({zeros.stream(), prompt, 0, CacheTensor::kKeys, element_bytes});
  values_.codec =
      storage->values.create({zeros.stream(), prompt, 0, CacheTensor::kValues, element_bytes});
}

Index StorageLayout::Part::bytes(Index vectors, Index written, int element_bytes) const {
  const Index as_they_came = (codec ? vectors - written : vectors) * width * element_bytes;
  if (!codec) return as_they_came;
  // A block counts by the share of its vectors that are counted.
  return as_they_came + (written * codec->counted_bytes() + codec->group() - 1) / codec->group();
}

Index StorageLayout::Part::bytes_after(Index rows, Index vectors, Index of_prompt,
                                       int element_bytes) const {
  const Index held = std::min(vectors, of_prompt + rows);
  const Index written = codec ? codec->written(held, std::min(held, of_prompt)) : 0;
  return bytes(held, written, element_bytes);
}

Index StorageLayout::bytes(const KeptCounts& kept, const KeptCounts& written) const {
  if (!keys_.codec && !values_.codec) return bytes_of(kept, shape_, element_bytes_);
  return keys_.bytes(kept.keys, written.keys, element_bytes_) +
         values_.bytes(kept.values, written.values, element_bytes_) +
         kept.bookkeeping * kBookkeepingBytes;
}

Index StorageLayout::key_numbers_bytes(Index numbers, Index keys, Index written) const {
  if (!keys_.codec || keys == 0) return numbers * element_bytes_;
  const double bytes = keys_.bytes(keys, written, element_bytes_);
  return static_cast<Index>(
      std::ceil(static_cast<double>(numbers) * bytes / static_cast<double>(keys * keys_.width)));
}

Index StorageLayout::most_bytes(const KeptCounts& kept, const KeptCounts& of_prompt) const {
  if (!keys_.codec && !values_.codec) return bytes_of(kept, shape_, element_bytes_);
  const Index decoded = std::max(kept.keys - of_prompt.keys, kept.values - of_prompt.values);
  Index most = 0;
  for (Index rows = std::min<Index>(1, decoded); rows <= decoded; ++rows) {
    most = std::max(most,
                    keys_.bytes_after(rows, kept.keys, of_prompt.keys, element_bytes_) +
                        values_.bytes_after(rows, kept.values, of_prompt.values, element_bytes_));
  }
  return most + kept.bookkeeping * kBookkeepingBytes;
}

bool StorageLayout::on_arrival() const {
  return (!keys_.codec || writes_on_arrival(*keys_.codec, shape_.tokens)) &&
         (!values_.codec || writes_on_arrival(*values_.codec, shape_.tokens));
}

double StorageLayout::Part::written_bytes(int element_bytes) const {
  return codec ? codec->counted_bytes() / static_cast<double>(codec->group())
               : (width * element_bytes);
}

Index StorageLayout::Part::most_waiting(Index tokens) const {
  Index most = 0;
  for (Index held = 1; codec && held <= tokens; ++held) {
    most = std::max(most, held - codec->written(held, held));
  }
  return most;
}

// n tokens take at least n times a written token's bytes, and at most what the waiting ones take
// more.
Index StorageLayout::reach() const {
  double more = 0.0;
  double written = 0.0;
  for (const Part* part : {&keys_, &values_}) {
    const double bytes = part->written_bytes(element_bytes_);
    more +=
        part->most_waiting(shape_.tokens) * std::max(0.0, (part->width * element_bytes_) - bytes);
    written += bytes;
  }
  return static_cast<Index>(std::ceil(more / written));
}

Index StorageLayout::shared_bytes() const {
  return (keys_.codec ? keys_.codec->shared_bytes() : 0) +
         (values_.codec ? values_.codec->shared_bytes() : 0);
}

Index StorageLayout::group(CacheTensor tensor) const {
  const Part& part = tensor == CacheTensor::kKeys ? keys_ : values_;
  return part.codec ? part.codec->group() : 1;
}

bool writes_on_arrival(const Codec& codec, Index tokens) {
  for (Index held = 1; held <= tokens; ++held) {
    if (codec.written(held, held) != held || codec.written(held, 0) != held) return false;
  }
  return true;
}

std::optional<std::string> reason_to_skip(const Storage& storage,
                                          const AlgorithmDescription& algorithm,
                                          const Params& params, const StreamShape& shape,
                                          Index prompt) {
  if (shape.value_in_key && !(storage.keys.is_float() && storage.values.is_float())) {
    return "the layer's values are columns of its keys (value_in_key), and codecs write keys and "
           "values apart; leave storage out, or take a dump whose layers have v";
  }
  for (const CacheTensor tensor : {CacheTensor::kKeys, CacheTensor::kValues}) {
    const CodecSetting& setting = storage.of(tensor);
    if (setting.is_float()) continue;
    if (auto why = setting.codec->skip_reason(setting.params, shape, tensor, prompt)) {
      return fmt::format("{} as {}: {}", name_of(tensor), setting.codec->id, *why);
    }
  }
  if (auto why = algorithm.not_stored(params)) return why;
  if (!storage.keys.is_float() && is_by_position(storage.keys.params) &&
      algorithm.makes_values(params)) {
    return fmt::format(
        "rope before and centre bias change keys by the positions of their tokens, and {} makes "
        "vectors of its own, which have no position; choose rope after, and centre mean or none",
        algorithm.id);
  }
  const StorageLayout layout(&storage, shape, prompt, 1);
  if (layout.group(CacheTensor::kValues) > 1 && algorithm.makes_values(params)) {
    return fmt::format("{} writes values of {} tokens together, and {} makes values of its own; {}",
                       storage.values.codec->id, layout.group(CacheTensor::kValues), algorithm.id,
                       kTokenByToken);
  }
  // Whatever the method, what leaves a sliding layer's window is dropped.
  const bool keeps = algorithm.only_appends(params) || algorithm.never_evicts(params);
  if (keeps && !shape.slides()) return std::nullopt;
  for (const CacheTensor tensor : {CacheTensor::kKeys, CacheTensor::kValues}) {
    if (layout.group(tensor) == 1) continue;
    return fmt::format(
        "{} writes {} of {} tokens together, and {} drops tokens from among them; {}",
        storage.of(tensor).codec->id, name_of(tensor), layout.group(tensor),
        keeps ? "the end of the layer's window" : algorithm.id, kTokenByToken);
  }
  return std::nullopt;
}

}  // namespace kvbench
