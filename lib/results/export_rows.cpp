#include "results/export_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace kvbench {
namespace {

void flatten(const std::string& prefix, const Json& value, FlatRow& row) {
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      flatten(prefix.empty() ? name : fmt::format("{}.{}", prefix, name), member, row);
    }
    return;
  }
  row.emplace_back(prefix, value);
}

constexpr const char* kFloat = "float";
// Between a label and its storage.
constexpr const char* kBeforeStorage = " | ";
constexpr const char* kStorage = "storage";

// "K q8_0 V q4_0", as the label ends; float without one.
std::string storage_text(const Json& cell) {
  if (!is_stored(cell)) return kFloat;
  const Json given = cell.value("label", Json());
  const std::string label = given.is_string() ? given.get<std::string>() : std::string();
  const std::size_t bar = label.rfind(kBeforeStorage);
  if (bar == std::string::npos) return to_line(cell.at("key").at(kStorage));
  return label.substr(bar + std::string(kBeforeStorage).size());
}

// The cell's storage as it is on its layer.
Json storage_of(const Json& cell) {
  const Json stored = is_stored(cell) ? cell.at("key").at(kStorage) : Json::object();
  const Json layers = stored.is_object() ? stored.value("by_layer", Json()) : Json();
  if (!layers.is_array()) return stored;
  Json found = Json::object();
  for (const Json& each : layers) {
    const Json named = each.is_object() ? each.value("layers", Json()) : Json();
    const bool is_named =
        std::find(named.begin(), named.end(), cell["key"]["layer"]) != named.end();
    if (is_named || (named.is_null() && found.empty()))
      found = each.value(kStorage, Json::object());
    if (is_named) break;
  }
  return found;
}

// storage.keys.codec and the like: a codec for every cell, float too.
void flatten_storage(const Json& cell, FlatRow& row) {
  for (const char* tensor : {"keys", "values"}) {
    const std::string name = fmt::format("{}.{}", kStorage, tensor);
    const Json none = {{"codec", kFloat}};
    const Json stored = storage_of(cell);
    const Json codec = stored.is_object() ? stored.value(tensor, none) : none;
    flatten(name, codec.is_object() ? codec : Json{{"codec", codec}}, row);
  }
}

}  // namespace

bool is_stored(const Json& record) { return record.at("key").contains(kStorage); }

FlatRow flat_row(const Json& record, bool with_codecs) {
  FlatRow row;
  for (const char* name : {"id", "status", "reason", "label"}) {
    row.emplace_back(name, record.value(name, Json()));
  }
  row.emplace_back(kStorage, storage_text(record));
  for (const auto& [name, value] : record.at("key").items()) {
    if (name != kStorage) flatten(name, value, row);
  }
  if (with_codecs) flatten_storage(record, row);
  for (const char* name : {"derived", "errors", "trivial", "mass", "evidence", "clusters", "memory",
                           "traffic", "counters"}) {
    const Json part = record.value(name, Json());
    if (!part.is_object()) continue;
    Json numbers = part;
    for (const char* list : {"trajectory", "lost"}) numbers.erase(list);
    const Json fraction = part.value("fraction", Json());
    if (std::string_view(name) == "memory" && fraction.is_number()) {
      numbers["compression_ratio"] = 1.0 - fraction.get<double>();
    }
    flatten(name, numbers, row);
  }
  if (const auto timing = record.find("timing"); timing != record.end())
    flatten("timing", *timing, row);
  return row;
}

}  // namespace kvbench
