#include "json/nesting.hpp"

#include <algorithm>
#include <array>

namespace kvbench {
namespace {

// The place behind the text in quotes that begins at `at`.
std::size_t behind_quotes(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

}  // namespace

JsonExtent extent_of(std::string_view text) {
  constexpr std::string_view kSigns = "[]{},:\"";
  JsonExtent extent;
  std::array<std::size_t, kDeepestRecord + 1> names = {};  // by level; deeper ones at the last
  std::size_t level = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t begin = at;
    at = text[at] == '"' ? behind_quotes(text, at)
                         : std::min(text.find_first_of(kSigns, at), text.size());
    extent.longest = std::max(extent.longest, at - begin);
    if (text[begin] == '"') extent.memory += json_bytes::kText + (at - begin);
    if (at == text.size() || text[at] == '"') continue;
    const char sign = text[at++];
    if (sign == '[' || sign == '{') {
      extent.levels = std::max(extent.levels, ++level);
      names[std::min(level, kDeepestRecord)] = 0;
    }
    if ((sign == ']' || sign == '}') && level > 0) --level;
    if (sign == '[' || sign == '{' || sign == ',') {
      ++extent.values;
      extent.memory += json_bytes::kValue;
    }
    if (sign == '[') extent.memory += json_bytes::kList + json_bytes::kValue;  // and its first
    if (sign == '{') extent.memory += json_bytes::kObject;
    if (sign == ':') {
      extent.memory += json_bytes::kName;
      extent.names = std::max(extent.names, ++names[std::min(level, kDeepestRecord)]);
    }
  }
  return extent;
}

}  // namespace kvbench
