// The width of text in a terminal.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "system/printable.hpp"

namespace kvbench {

// Columns of the terminal that `stream` writes to, asked anew each time; 0 where it is not one.
// COLUMNS, then 80, where the terminal does not know its width.
std::size_t terminal_columns(std::FILE* stream);

// Columns that a line takes: wide characters two, combining ones none.
std::size_t display_width(std::string_view text);

// The longest beginning of `text` that fits `columns`, with "..." at its end where it was cut.
std::string cut_to(std::string_view text, std::size_t columns);

// `text` in lines of at most `columns` (1 or more), broken at spaces and, where a word is longer
// than a line, within it. At least one line.
std::vector<std::string> wrap_words(std::string_view text, std::size_t columns);

// The same with a newline at the end of each line; `columns` 0: 100.
std::string paragraph(std::string_view text, std::size_t columns);

}  // namespace kvbench
