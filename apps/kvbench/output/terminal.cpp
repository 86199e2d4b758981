#include "output/terminal.hpp"

#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <cstdlib>

namespace kvbench {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kMaxColumns = 4096;
constexpr std::size_t kWithoutTerminal = 100;

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
    return columns < 0 ? 1 : columns;
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
  const char* columns_text = std::getenv("COLUMNS");
  const unsigned long columns =
      columns_text == nullptr ? 0 : std::strtoul(columns_text, nullptr, 10);
  return columns > 0 && columns <= kMaxColumns ? columns : kUsualColumns;
}

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
      } else {  // a character wider than the line has a line of its own
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
