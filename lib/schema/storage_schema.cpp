#include "schema/storage_schema.hpp"

#include <string>
#include <utility>
#include <vector>

#include "schema/parameter_schema.hpp"
#include "storage/codec_registry.hpp"
#include "sweep/axis.hpp"
#include "sweep/sweep_keys.hpp"

namespace kvbench {
namespace {

Json definition(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

// An object with the codec's id and its parameters, values or axes.
Json codec_object(const CodecDescription& codec) {
  Json properties = {{"codec", {{"const", codec.id}}}};
  std::vector<std::string> required = {"codec"};
  for (const Parameter& parameter : codec.parameters) {
    Json schema = {{"description", parameter.doc}};
    schema.update(axis_schema(parameter));
    if (parameter.default_value) {
      schema["default"] = value_json(*parameter.default_value);
    } else {
      required.push_back(parameter.name);
    }
    properties[parameter.name] = std::move(schema);
  }
  return object_schema(std::move(properties), required);
}

// Schema of `keys` or `values`.
Json codecs_of(CacheTensor tensor) {
  std::vector<std::string> names = {"float"};
  Json alternatives = Json::array();
  for (const CodecDescription& codec : all_codecs()) {
    if (!(tensor == CacheTensor::kKeys ? codec.of_keys : codec.of_values)) continue;
    names.push_back(codec.id);
    alternatives.push_back(definition("codec-" + codec.id));
  }
  alternatives.insert(alternatives.begin(), Json{{"enum", names}});
  return {{"anyOf", std::move(alternatives)}};
}

Json both_tensors() {
  std::vector<std::string> names = {"float"};
  for (const CodecDescription& codec : all_codecs()) {
    if (codec.of_keys && codec.of_values) names.push_back(codec.id);
  }
  return {{"description", "one codec with its defaults for keys and values"}, {"enum", names}};
}

Json keys_and_values() {
  Json properties;
  for (const SweepKey& key : storage_keys().keys) {
    if (key.name == "by_layer") continue;
    Json schema = {{"description", key.doc}};
    schema.update(codecs_of(key.name == "keys" ? CacheTensor::kKeys : CacheTensor::kValues));
    properties[key.name] = std::move(schema);
  }
  Json schema = object_schema(std::move(properties));
  schema["minProperties"] = 1;
  return schema;
}

Json by_layer() {
  const Json storage = {{"anyOf", Json::array({both_tensors(), keys_and_values()})}};
  Json properties;
  for (const SweepKey& key : layer_storage_keys().keys) {
    Json schema = {{"description", key.doc}};
    schema.update(key.name == "layers" ? integers_schema(kIndexRange, false) : storage);
    properties[key.name] = std::move(schema);
  }
  const Json items = object_schema(std::move(properties), {"storage"});
  return object_schema({{"by_layer", {{"type", "array"}, {"items", items}, {"minItems", 1}}}},
                       {"by_layer"});
}

}  // namespace

Json storages_schema() {
  return {{"anyOf",
           Json::array({definition("storage"),
                        {{"type", "array"}, {"items", definition("storage")}, {"minItems", 1}}})}};
}

Json storage_schema() { return definition("storage"); }

Json storage_definitions() {
  Json definitions;
  definitions["storage"] = {
      {"anyOf", Json::array({both_tensors(), keys_and_values(), by_layer()})}};
  for (const CodecDescription& codec : all_codecs()) {
    definitions["codec-" + codec.id] = codec_object(codec);
  }
  return definitions;
}

}  // namespace kvbench
