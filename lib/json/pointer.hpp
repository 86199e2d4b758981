// Where in a JSON file something is wrong, for system/error.hpp's ErrorList.
#pragma once

#include <cstddef>
#include <string>

#include "system/error.hpp"

namespace kvbench {

// `pointer` extended by one key ("~" and "/" escaped) or one index.
std::string child(const std::string& pointer, const std::string& key);
std::string child(const std::string& pointer, std::size_t index);

}  // namespace kvbench
