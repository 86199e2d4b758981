#include "cli/byte_size.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace kvbench {
namespace {

// Bytes of one of `unit`, in lower case; 0 if the unit is unknown.
double bytes_of(std::string unit) {
  if (!unit.empty() && unit.back() == 'b') unit.pop_back();
  if (unit.empty()) return 1.0;
  const double base = unit.size() == 2 && unit[1] == 'i' ? 1024.0 : 1000.0;
  const std::size_t power = std::string("kmgtp").find(unit[0]);
  if (power == std::string::npos || unit.size() > (base == 1024.0 ? 2 : 1)) return 0.0;
  return std::pow(base, static_cast<double>(power + 1));
}

}  // namespace

std::string to_bytes(std::string& text) {
  constexpr double kLargest = 0x1p63;
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  const double bytes = number * bytes_of(unit);
  if (error != std::errc() || !(bytes >= 1.0 && bytes < kLargest)) {
    return fmt::format("expected a size of at least one byte, such as 1.5GiB, got '{}'", text);
  }
  text = std::to_string(static_cast<std::uint64_t>(bytes));
  return "";
}

}  // namespace kvbench
