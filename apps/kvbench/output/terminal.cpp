#include "output/terminal.hpp"

#include <fmt/format.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <cstdlib>

namespace kvbench {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kMostColumns = 4096;
constexpr std::size_t kWithoutTerminal = 100;

struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;  // else one byte that is not UTF-8
};

// The character at the beginning of `text`, which is not empty.
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

// The width tables of the C library, whatever locale the program runs in: only this thread's
// character types change, and only as long as this lives, so that numbers are written as ever.
class WidthTables {
 public:
  WidthTables() {
    static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    known_ = utf8 != nullptr;
    if (known_) before_ = uselocale(utf8);
  }
  ~WidthTables() {
    if (known_) uselocale(before_);
  }
  WidthTables(const WidthTables&) = delete;
  WidthTables& operator=(const WidthTables&) = delete;

  std::size_t width(const Character& character) const {
    if (character.code < 0x300) return 1;
    if (!known_) return character.code < 0x1100 ? 1 : 2;  // too much rather than too little
    const int columns = ::wcwidth(static_cast<wchar_t>(character.code));
    return columns < 0 ? 1 : static_cast<std::size_t>(columns);
  }

 private:
  bool known_ = false;
  locale_t before_ = nullptr;
};

// Bytes of the longest beginning of `text` that takes at most `columns`.
std::size_t bytes_within(std::string_view text, std::size_t columns) {
  const WidthTables tables;
  std::size_t taken = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const Character each = first_character(text.substr(at));
    taken += tables.width(each);
    if (taken > columns) break;
    at += each.bytes;
  }
  return at;
}

}  // namespace

std::size_t terminal_columns(std::FILE* stream) {
  const int descriptor = fileno(stream);
  if (isatty(descriptor) == 0) return 0;
  struct winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* told = std::getenv("COLUMNS");
  const unsigned long columns = told == nullptr ? 0 : std::strtoul(told, nullptr, 10);
  return columns > 0 && columns <= kMostColumns ? columns : kUsualColumns;
}

std::string printable(std::string_view text) { return without_steering(text, true); }

std::string one_line(std::string_view text) { return without_steering(text, false); }

std::size_t display_width(std::string_view text) {
  const WidthTables tables;
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character each = first_character(text);
    columns += tables.width(each);
    text.remove_prefix(each.bytes);
  }
  return columns;
}

std::string cut_to(std::string_view text, std::size_t columns) {
  if (display_width(text) <= columns) return std::string(text);
  const std::string dots(columns < 3 ? columns : 3, '.');
  return std::string(text.substr(0, bytes_within(text, columns - dots.size()))) + dots;
}

std::vector<std::string> wrap_words(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  do {
    std::size_t end = text.size();
    std::size_t next = end;
    if (display_width(text) > columns) {
      end = bytes_within(text, columns);
      const std::size_t space = text.rfind(' ', end);
      if (space != std::string_view::npos && space > 0) {
        end = space;
        next = space + 1;
      } else {  // a character wider than the line stands alone all the same
        if (end == 0) end = first_character(text).bytes;
        next = end;
      }
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(next);
  } while (!text.empty());
  return lines;
}

std::string paragraph(std::string_view text, std::size_t columns) {
  std::string out;
  for (const std::string& line : wrap_words(text, columns > 0 ? columns : kWithoutTerminal)) {
    out += line + "\n";
  }
  return out;
}

}  // namespace kvbench
