#include "system/shortened.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace kvbench {
namespace {

// Bytes that a message has at most, and those of its end, where the remedy is.
constexpr std::size_t kLongest = 4096;
constexpr std::size_t kEnd = 1024;

// Whether a character of UTF-8 goes on with this byte.
bool goes_on(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

}  // namespace

std::string shortened(std::string message) {
  if (message.size() <= kLongest) return message;
  std::size_t first = kLongest - kEnd;
  std::size_t last = message.size() - kEnd;
  while (first > 0 && goes_on(message[first])) --first;
  while (last < message.size() && goes_on(message[last])) ++last;
  message.replace(first, last - first, fmt::format(" ... {} bytes ... ", last - first));
  return message;
}

std::string count_text(double count) {
  if (count < 1e20) return fmt::format("{:.0f}", count);
  std::string text = fmt::format("{:.2g}", count);
  std::erase(text, '+');
  return "about " + text;
}

}  // namespace kvbench
