// Reading the members of a JSON file, one kind of value per function. Each returns nothing and
// leaves an error if the file holds something else.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"

namespace kvbench {

// Whether `given` is an object; every key of it that is not in `known` is an error. `owner` says
// whose keys they are ("a sweep file"), and `elsewhere` where the file has such a key.
bool read_object(const nlohmann::json& given, const std::vector<std::string>& known,
                 const std::string& owner, const std::string& pointer, ErrorList& errors,
                 const std::map<std::string, std::string>& elsewhere = {});

// The member `key` of `object`, or null if it is absent (`object` may be no object at all).
const nlohmann::json* member(const nlohmann::json& object, const std::string& key);

std::optional<bool> read_flag(const nlohmann::json& given, const std::string& pointer,
                              ErrorList& errors);

}  // namespace kvbench
