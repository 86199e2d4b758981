#include "results/cell_field.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/spelling.hpp"

namespace kvbench {
namespace {

const std::vector<std::string>& field_names() {
  static const std::vector<std::string> names = {
      "algorithm", "label",        "sequence",       "layer", "kv_head",
      "seed",      "tokens",       "prompt_tokens",  "rows",  "element_bytes",
      "device",    "scope_layers", "scope_kv_heads", "dump"};
  return names;
}

}  // namespace

std::optional<CellField> cell_field(const std::string& given) {
  const std::string prefix = "key.";
  const std::string name = given.rfind(prefix, 0) == 0 ? given.substr(prefix.size()) : given;
  const std::string params = "params.";
  if (name.rfind(params, 0) == 0 && name.size() > params.size()) {
    return CellField{name, Json::json_pointer("/key/params") / name.substr(params.size())};
  }
  const auto& names = field_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  if (name == "label") {
    if (name != given) return std::nullopt;
    return CellField{name, Json::json_pointer("/label")};
  }
  return CellField{name, Json::json_pointer("/key") / name};
}

std::string unknown_field(const std::string& name) {
  const std::string near = did_you_mean(name, field_names());
  return fmt::format(
      "unknown field {} of a cell{}", name,
      near.empty() ? fmt::format("; there are params.NAME, {}", fmt::join(field_names(), ", "))
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
  return key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace kvbench
