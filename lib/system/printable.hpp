// Text that comes from a file, as it may be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvbench {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;  // else one byte that is not UTF-8
};

// The character at the beginning of `text`, which is not empty.
Character first_character(std::string_view text);

// `text` without what steers a terminal or hides text: control characters (C0, DEL, C1), line and
// paragraph separators, and characters that change the writing direction become \u001b, bytes that
// are not UTF-8 become \xff. Newlines stay. Strings in a JSON text keep their values.
std::string printable(std::string_view text);

// The same with newlines as \u000a: for names within a line.
std::string one_line(std::string_view text);

}  // namespace kvbench
