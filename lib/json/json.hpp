// The one door to nlohmann-json. Files are read as nlohmann::json, whose keys are sorted, and
// written as Json, whose keys stay in the order in which they were set.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvbench {

using Json = nlohmann::ordered_json;

// One line, shortest round-trip numbers; bytes that are no UTF-8 (paths may hold any) are replaced.
inline std::string to_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvbench
