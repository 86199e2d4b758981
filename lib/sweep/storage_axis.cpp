#include "sweep/storage_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "json/document.hpp"
#include "json/reader.hpp"
#include "storage/codec_registry.hpp"
#include "sweep/json_fields.hpp"
#include "sweep/named_files.hpp"
#include "sweep/parameter_columns.hpp"
#include "sweep/sweep_keys.hpp"
#include "system/shortened.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

constexpr const char* kFloat = "float";

// Fewer than cells (kMaxCells): all of them are in memory at once, unlike points of algorithms.
constexpr std::size_t kMaxStorages = 100'000;

// Whether `count` of `what` are too many; an error then.
bool too_many(double count, const char* what, const std::string& pointer, ErrorList& errors) {
  if (count <= kMaxStorages) return false;
  errors.add(pointer, fmt::format("makes {} {}, more than the {} that a sweep may have; "
                                  "shorten an axis",
                                  count_text(count), what, kMaxStorages));
  return true;
}

const CodecDescription* codec_named(const json& given, CacheTensor tensor,
                                    const std::string& pointer, ErrorList& errors) {
  if (!given.is_string()) {
    errors.add(pointer, "must be the id of a codec, got " + shown(given));
    return nullptr;
  }
  const auto& id = given.get_ref<const std::string&>();
  const CodecDescription* codec = find_codec(id);
  if (id == kFloat) {
    errors.add(pointer, "float has no parameters; write \"float\" in place of the object");
    return nullptr;
  }
  if (codec == nullptr) {
    std::vector<std::string> known = {kFloat};
    for (const CodecDescription& each : all_codecs()) known.push_back(each.id);
    const std::string near = errors.is_full() ? "" : did_you_mean(id, known);
    errors.add(pointer, fmt::format("unknown codec {}{}", id,
                                    near.empty() ? "; see kvbench list storage" : near));
    return nullptr;
  }
  if (tensor == CacheTensor::kKeys ? codec->of_keys : codec->of_values) return codec;
  errors.add(pointer, tensor == CacheTensor::kKeys
                          ? id + " writes values only; name another codec for the keys"
                          : id + " writes keys only; name another codec for the values");
  return nullptr;
}

// Why no stream's values can be written so, if keys as wide can.
std::optional<std::string> not_of_values(const CodecSetting& setting, CacheTensor tensor) {
  if (tensor == CacheTensor::kKeys) return std::nullopt;
  StreamShape shape;
  shape.tokens = 4096;
  shape.d = shape.dv = 128;  // a width that every codec takes
  shape.rope = std::make_shared<const Rope>();
  shape.key_bias = true;
  const auto why_not = [&](CacheTensor of) {
    return setting.codec->skip_reason(setting.params, shape, of, shape.tokens / 2);
  };
  return why_not(CacheTensor::kKeys) ? std::nullopt : why_not(CacheTensor::kValues);
}

// The settings that `given` stands for, in the order of its axes; none after an error.
std::vector<CodecSetting> read_codec(const json& given, CacheTensor tensor,
                                     const std::string& pointer,
                                     const std::optional<std::string>& folder, ErrorList& errors) {
  if (given == kFloat) return {CodecSetting{}};
  const std::size_t before = errors.count();
  const bool is_object = given.is_object();
  const std::string place = is_object ? child(pointer, "codec") : pointer;
  if (!is_object && !given.is_string()) {
    errors.add(pointer,
               "must be \"float\", the id of a codec, or an object with its id under codec "
               "and its parameters, got " +
                   shown(given));
    return {};
  }
  const json* id = is_object ? member(given, "codec") : &given;
  if (id == nullptr) {
    errors.add(place, "this key is missing; name a codec (kvbench list storage)");
    return {};
  }
  const CodecDescription* codec = codec_named(*id, tensor, place, errors);
  if (codec == nullptr) return {};
  const json none = json::object();
  auto columns = read_columns(is_object ? given : none, {codec->id, codec->parameters, {}},
                              {"codec"}, pointer, errors);
  if (!columns || !find_files(*columns, folder, errors)) return {};
  std::vector<std::pair<std::string, std::vector<Value>>> axes;
  double points = 1.0;
  for (const ParameterColumn& column : *columns) {
    points *= column.axis.values.size();
    axes.emplace_back(column.parameter->name, column.axis.values);
  }
  if (too_many(points, "settings of a codec", pointer, errors)) return {};
  std::vector<CodecSetting> settings;
  for (Index i = 0; i < points_of(axes); ++i) {
    CodecSetting setting{codec, point_of(axes, codec->parameters, i)};
    if (const auto invalid = codec->validate(setting.params)) {
      errors.add(child(pointer, invalid->first), invalid->second);
    } else if (const auto why = not_of_values(setting, tensor)) {
      errors.add(pointer, *why);
    }
    settings.push_back(std::move(setting));
  }
  return errors.count() == before ? settings : std::vector<CodecSetting>();
}

Storages read_element(const json& given, const std::string& pointer,
                      const std::optional<std::string>& folder, ErrorList& errors);

// One element of a `by_layer`, into `out`; `layer_of`: the pointers of those that name a layer.
void read_layers(const json& given, const std::string& pointer,
                 const std::optional<std::string>& folder, LayerStorages& out,
                 std::map<int, std::string>& layer_of, ErrorList& errors) {
  if (!read_object(given, layer_storage_keys(), pointer, errors)) return;
  const json* of_layers = member(given, "storage");
  const std::string place = child(pointer, "storage");
  if (of_layers == nullptr) {
    errors.add(place, "this key is missing; " + layer_storage_keys().at("storage").missing);
    return;
  }
  const bool nested = of_layers->is_object() && of_layers->contains("by_layer");
  if (of_layers->is_array() || nested) {
    errors.add(place, "must be one storage of all these layers; list the layers of each apart");
    return;
  }
  const Storages storages = read_element(*of_layers, place, folder, errors);
  if (storages.size() > 1) {
    errors.add(place, fmt::format("makes {} storages, and layers have one; give each parameter one "
                                  "value",
                                  storages.size()));
  }
  if (storages.size() != 1) return;
  const Storage storage = storages.front() ? *storages.front() : Storage{};
  const json* layers = member(given, "layers");
  if (layers == nullptr) {
    if (out.others) errors.add(pointer, "is the second without layers; name its layers");
    out.others = storage;
    return;
  }
  const auto read = read_integers(*layers, kIndexRange, false, child(pointer, "layers"), errors);
  if (!read) return;
  LayerStorages::Some some{{read->begin(), read->end()}, storage};
  std::sort(some.layers.begin(), some.layers.end());
  for (const int layer : some.layers) {
    const auto [first, is_new] = layer_of.emplace(layer, pointer);
    if (is_new) continue;
    errors.add(child(pointer, "layers"),
               fmt::format("layer {} is in {} too; leave it out of one", layer, first->second));
  }
  out.some.push_back(std::move(some));
}

Storages read_by_layer(const json& given, const std::string& pointer,
                       const std::optional<std::string>& folder, ErrorList& errors) {
  const std::size_t before = errors.count();
  if (!given.is_array() || given.empty()) {
    errors.add(pointer, "must be a list of {\"layers\": .., \"storage\": ..}, got " + shown(given));
    return {};
  }
  LayerStorages layers;
  std::map<int, std::string> layer_of;
  for (std::size_t i = 0; i < given.size(); ++i) {
    read_layers(given[i], child(pointer, i), folder, layers, layer_of, errors);
  }
  if (errors.count() != before) return {};
  return {std::make_shared<const Storage>(
      Storage{{}, {}, std::make_shared<const LayerStorages>(std::move(layers))})};
}

Storages read_element(const json& given, const std::string& pointer,
                      const std::optional<std::string>& folder, ErrorList& errors) {
  const std::size_t before = errors.count();
  std::vector<CodecSetting> keys = {CodecSetting{}};
  std::vector<CodecSetting> values = keys;
  if (!given.is_object()) {
    keys = read_codec(given, CacheTensor::kKeys, pointer, folder, errors);
    if (errors.count() == before)
      values = read_codec(given, CacheTensor::kValues, pointer, folder, errors);
  } else if (given.contains("codec")) {
    errors.add(pointer, "is one codec; write {\"keys\": .., \"values\": ..}, each a codec like it");
  } else {
    read_object(given, storage_keys(), pointer, errors);
    const json* of_keys = member(given, "keys");
    const json* of_values = member(given, "values");
    if (const json* by_layer = member(given, "by_layer")) {
      if (of_keys != nullptr || of_values != nullptr) {
        errors.add(pointer, "has by_layer besides keys or values; put these into its elements");
      }
      return read_by_layer(*by_layer, child(pointer, "by_layer"), folder, errors);
    }
    if (of_keys == nullptr && of_values == nullptr && errors.count() == before) {
      errors.add(pointer,
                 "names a codec neither for keys nor for values; \"float\" stands for none");
    }
    if (of_keys != nullptr) {
      keys = read_codec(*of_keys, CacheTensor::kKeys, child(pointer, "keys"), folder, errors);
    }
    if (of_values != nullptr) {
      values =
          read_codec(*of_values, CacheTensor::kValues, child(pointer, "values"), folder, errors);
    }
  }
  Storages storages;
  if (errors.count() != before ||
      too_many(keys.size() * static_cast<double>(values.size()), "storages", pointer, errors)) {
    return storages;
  }
  for (const CodecSetting& k : keys) {
    for (const CodecSetting& v : values) {
      const bool is_float = k.is_float() && v.is_float();
      storages.push_back(is_float ? nullptr : std::make_shared<const Storage>(Storage{k, v}));
    }
  }
  return storages;
}

json codec_json(const CodecSetting& setting) {
  if (setting.is_float()) return kFloat;
  json object = {{"codec", setting.codec->id}};
  for (const auto& [name, value] : setting.params.entries()) object[name] = value_json(value);
  return object;
}

}  // namespace

std::optional<Storages> read_storages(const json& given, const std::string& pointer,
                                      const std::optional<std::string>& folder, ErrorList& errors) {
  const std::size_t before = errors.count();
  if (!given.is_array()) {
    Storages one = read_element(given, pointer, folder, errors);
    return errors.count() == before ? std::optional(std::move(one)) : std::nullopt;
  }
  if (given.empty()) {
    errors.add(pointer, "must not be empty; \"float\" stands for no codec");
    return std::nullopt;
  }
  Storages all;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (auto& storage : read_element(given[i], child(pointer, i), folder, errors)) {
      const std::string text = exact_line(storage_json(storage.get()));
      if (!seen.insert(text).second) {
        errors.add(child(pointer, i), "is listed twice: " + text);
      } else {
        all.push_back(std::move(storage));
      }
    }
    if (too_many(all.size(), "storages", pointer, errors)) break;
  }
  return errors.count() == before ? std::optional(std::move(all)) : std::nullopt;
}

json storage_json(const Storage* storage) {
  if (storage == nullptr) return kFloat;
  if (storage->by_layer) {
    json layers = json::array();
    for (const LayerStorages::Some& each : storage->by_layer->some) {
      layers.push_back({{"layers", each.layers}, {"storage", storage_json(&each.storage)}});
    }
    if (const auto& others = storage->by_layer->others) {
      layers.push_back({{"storage", storage_json(&*others)}});
    }
    return {{"by_layer", std::move(layers)}};
  }
  return {{"keys", codec_json(storage->keys)}, {"values", codec_json(storage->values)}};
}

}  // namespace kvbench
