#include "json/nesting.hpp"

namespace kvbench {
namespace {

// Calls `sign(c)` for every character outside of quotes, until it returns true; whether it did.
template <class Sign>
bool any_outside_quotes(std::string_view text, const Sign& sign) {
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (sign(c)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool nests_too_deep(std::string_view text) {
  int depth = 0;
  return any_outside_quotes(text, [&](char c) {
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    return depth > kDeepestRecord;
  });
}

bool is_crowded(std::string_view text, std::size_t most) {
  std::size_t values = 0;
  if (text.size() <= most) return false;
  return any_outside_quotes(text, [&](char c) {
    values += c == '[' || c == '{' || c == ',' ? 1 : 0;
    return values > most;
  });
}

}  // namespace kvbench
