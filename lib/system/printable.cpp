#include "system/printable.hpp"

#include <fmt/format.h>

namespace kvbench {
namespace {

// Whether a terminal would act on the character, or show the text around it elsewhere.
bool steers(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string without_steering(std::string_view text, bool newlines_stay) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character each = first_character(text);
    if (!each.valid) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (steers(each.code) && !(newlines_stay && each.code == '\n')) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(each.code));
    } else {
      out += text.substr(0, each.bytes);
    }
    text.remove_prefix(each.bytes);
  }
  return out;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t code = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kSmallest[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes, true};
}

std::string printable(std::string_view text) { return without_steering(text, true); }

std::string one_line(std::string_view text) { return without_steering(text, false); }

}  // namespace kvbench
