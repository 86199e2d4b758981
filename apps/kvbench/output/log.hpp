// Messages for people, on stderr.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace kvbench {

// Text that cannot be written (a log on a full disk, a closed stream) is lost: it must not end a
// run.
template <class... Args>
void log_text(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  if (std::fwrite(text.data(), 1, text.size(), stderr) != text.size()) std::clearerr(stderr);
}

}  // namespace kvbench
