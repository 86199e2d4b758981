// Names of two methods as one, of which the second reads what the first kept ("then" of a sweep).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvbench {

inline constexpr char kPairMark = '+';  // between the ids of both

// Before the names of the second method's parameters and derived values.
inline constexpr const char* kThen = "then.";

// The second method's own name for one that begins with kThen; none for any other.
inline std::optional<std::string> name_in_reader(const std::string& name) {
  const std::string_view then = kThen;
  return name.starts_with(then) ? std::optional(name.substr(then.size())) : std::nullopt;
}

// Ids of both methods; the second is empty where the id is that of one.
inline std::pair<std::string, std::string> ids_of_pair(const std::string& id) {
  const std::size_t mark = id.find(kPairMark);
  if (mark == std::string::npos) return {id, ""};
  return {id.substr(0, mark), id.substr(mark + 1)};
}

}  // namespace kvbench
