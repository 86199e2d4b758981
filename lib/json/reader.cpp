#include "json/reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "json/document.hpp"
#include "system/spelling.hpp"

namespace kvbench {

using nlohmann::json;

bool read_object(const json& given, const std::vector<std::string>& known, const std::string& owner,
                 const std::string& pointer, ErrorList& errors,
                 const std::map<std::string, std::string>& elsewhere) {
  if (!given.is_object()) {
    errors.add(pointer, fmt::format("must be an object with {}, got {}", fmt::join(known, ", "),
                                    shown(given)));
    return false;
  }
  for (const auto& item : given.items()) {
    const std::string& key = item.key();
    bool found = false;
    for (const std::string& name : known) found = found || name == key;
    if (found) continue;
    const auto there = elsewhere.find(key);
    std::string near;
    if (there != elsewhere.end()) {
      near = did_you_mean(there->second);
    } else if (!errors.is_full()) {
      near = did_you_mean(key, known);
    }
    errors.add(
        child(pointer, key),
        fmt::format("unknown key of {}{}", owner,
                    near.empty() ? fmt::format("; it has {}", fmt::join(known, ", ")) : near));
  }
  return true;
}

const json* member(const json& object, const std::string& key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::optional<bool> read_flag(const json& given, const std::string& pointer, ErrorList& errors) {
  if (given.is_boolean()) return given.get<bool>();
  const bool is_quoted = given == "true" || given == "false";
  errors.add(pointer, "must be true or false, got " + shown(given) +
                          (is_quoted ? "; write it without quotes" : ""));
  return std::nullopt;
}

}  // namespace kvbench
