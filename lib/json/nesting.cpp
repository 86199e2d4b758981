#include "json/nesting.hpp"

namespace kvbench {

bool nests_deeper(std::string_view text, std::size_t most) {
  std::size_t level = 0;
  bool quoted = false;
  for (std::size_t at = 0; (at = text.find_first_of(quoted ? "\"\\" : "[]{}\"", at)) < text.size();
       ++at) {
    const char sign = text[at];
    if (sign == '\\') {
      ++at;
    } else if (sign == '"') {
      quoted = !quoted;
    } else if (sign == '[' || sign == '{') {
      if (++level > most) return true;
    } else if (level > 0) {
      --level;
    }
  }
  return false;
}

}  // namespace kvbench
