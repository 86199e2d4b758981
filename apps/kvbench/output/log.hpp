// Text for people, on stderr and stdout. Texts of dumps and files pass through here, so that
// their names can neither steer a terminal nor break a line.
#pragma once

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "json/json.hpp"
#include "output/terminal.hpp"

namespace kvbench {

// An argument as log_text writes it: strings become one line.
template <class T>
auto argument_text(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return one_line(argument);
  } else {
    return argument;
  }
}

template <class... Args>
std::string text_of_line(fmt::format_string<Args...> format, const Args&... args) {
  const auto formatted = [&](const auto&... cleaned) {
    return fmt::vformat(fmt::string_view(format), fmt::make_format_args(cleaned...));
  };
  return printable(formatted(argument_text(args)...));
}

// A text of several lines, such as a table. Text that cannot be written (a log on a full disk, a
// closed stream) is lost: it must not end a run.
inline void log_block(std::string_view block) {
  const std::string text = printable(block);
  if (std::fwrite(text.data(), 1, text.size(), stderr) != text.size()) std::clearerr(stderr);
}

// Lines as `format` has them; strings among the arguments are one line each.
template <class... Args>
void log_text(fmt::format_string<Args...> format, const Args&... args) {
  log_block(text_of_line<Args...>(format, args...));
}

// The same on stdout. Throws std::system_error where it cannot be written.
inline void print_block(std::string_view block) {
  const std::string text = printable(block);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw std::system_error(errno, std::generic_category(), "cannot write");
  }
}

inline void log_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) log_text("kvbench: note: {}\n", note);
}

inline void print_json(const Json& document, int indent) {
  print_block(indented(document, indent) + "\n");
}

template <class... Args>
void print_text(fmt::format_string<Args...> format, const Args&... args) {
  print_block(text_of_line<Args...>(format, args...));
}

}  // namespace kvbench
