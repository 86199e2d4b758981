#include "results/cell_field.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "system/error.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

struct KnownField {
  const char* name;
  FieldValues values;
};

constexpr KnownField kFields[] = {
    {"algorithm", FieldValues::kNames},    {"label", FieldValues::kNames},
    {"sequence", FieldValues::kNames},     {"layer", FieldValues::kIntegers},
    {"kv_head", FieldValues::kIntegers},   {"seed", FieldValues::kIntegers},
    {"tokens", FieldValues::kIntegers},    {"prompt_tokens", FieldValues::kIntegers},
    {"rows", FieldValues::kAny},           {"element_bytes", FieldValues::kIntegers},
    {"device", FieldValues::kNames},       {"scope_layers", FieldValues::kAny},
    {"scope_kv_heads", FieldValues::kAny}, {"dump", FieldValues::kNames}};

// Prefixes of the names of an object's members, and the object's place in a cell.
constexpr std::pair<const char*, const char*> kPlaces[] = {
    {"params.", "/key/params"},
    {"storage.keys.", "/key/storage/keys"},
    {"storage.values.", "/key/storage/values"}};

}  // namespace

const std::vector<std::string>& cell_field_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const KnownField& field : kFields) all.emplace_back(field.name);
    return all;
  }();
  return names;
}

FieldValues field_values(const std::string& name) {
  for (const KnownField& field : kFields) {
    if (field.name == name) return field.values;
  }
  return FieldValues::kAny;  // params.NAME, storage.keys.NAME
}

std::optional<CellField> cell_field(const std::string& given) {
  const std::string prefix = "key.";
  const std::string name = given.rfind(prefix, 0) == 0 ? given.substr(prefix.size()) : given;
  for (const auto& [begin, place] : kPlaces) {
    const std::string start = begin;
    if (name.rfind(start, 0) == 0 && name.size() > start.size()) {
      return CellField{name, Json::json_pointer(place) / name.substr(start.size())};
    }
  }
  const auto& names = cell_field_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  if (name == "label") {
    if (name != given) return std::nullopt;
    return CellField{name, Json::json_pointer("/label")};
  }
  return CellField{name, Json::json_pointer("/key") / name};
}

std::string unknown_field(const std::string& name) {
  const std::string near = did_you_mean(name, cell_field_names());
  return fmt::format("unknown field {} of a cell{}", name,
                     near.empty() ? fmt::format("; there are params.NAME, storage.keys.NAME, "
                                                "storage.values.NAME, {}",
                                                fmt::join(cell_field_names(), ", "))
                                  : near);
}

const Json* value_at(const Json& cell, const Json::json_pointer& place) {
  return cell.contains(place) ? &cell.at(place) : nullptr;
}

std::optional<double> number_at(const Json& cell, const Json::json_pointer& place) {
  const Json* value = value_at(cell, place);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

void require_cell(const Json& cell, std::size_t index, const std::string& path,
                  const std::string& member) {
  const Json* key = value_at(cell, Json::json_pointer("/key"));
  const Json* params = value_at(cell, Json::json_pointer("/key/params"));
  const Json* status = value_at(cell, Json::json_pointer("/status"));
  if (key != nullptr && key->is_object() && params != nullptr && params->is_object() &&
      status != nullptr && status->is_string() && *status != "") {
    return;
  }
  throw InputError(
      fmt::format("{}: /{}/{}: is not a {} record (missing key or status); was "
                  "the file written by kvbench?",
                  path, member, index, member == "cells" ? "cell" : "layer"));
}

Json cell_reference(const Json& cell) {
  const Json& key = cell.at("key");
  Json out;
  out["id"] = cell.value("id", Json());
  out["algorithm"] = key.value("algorithm", Json());
  out["label"] = cell.value("label", Json());
  for (const char* name : {"sequence", "layer", "kv_head", "params", "seed"}) {
    out[name] = key.value(name, Json());
  }
  return out;
}

std::string portable_key(const Json& cell) {
  nlohmann::json key = cell.at("key");
  key.erase("device");
  return sorted_line(key);
}

}  // namespace kvbench
