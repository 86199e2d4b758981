#include "output/terminal.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <string>
#include <vector>

#include "output/log.hpp"

namespace kvbench::test {
namespace terminal_test {

using Lines = std::vector<std::string>;

TEST_CASE("what steers a terminal is shown, not done") {
  CHECK(printable("plain, \u00fcn\u00ef, \u5e8f\u5217") == "plain, \u00fcn\u00ef, \u5e8f\u5217");
  CHECK(printable("\x1b[41mred\x07") == "\\u001b[41mred\\u0007");
  CHECK(printable("a\rb\tc\x7f") == "a\\u000db\\u0009c\\u007f");
  CHECK(printable("\xc2\x9b"
                  "41m") == "\\u009b41m");  // CSI as one C1 character
  CHECK(printable("\u202egnp.exe\u2066") == "\\u202egnp.exe\\u2066");
  CHECK(printable(std::string("a\0b", 3)) == "a\\u0000b");
  CHECK(printable("two\nlines\n") == "two\nlines\n");
  CHECK(one_line("two\nlines") == "two\\u000alines");
}

TEST_CASE("bytes that are not UTF-8 are shown as bytes") {
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\x9b"
                  "41m") == "\\x9b41m");
  CHECK(printable("\xc3") == "\\xc3");                             // cut short
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // longer than it need be
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

TEST_CASE("strings among the arguments of a line are one line, and the format stays as it is") {
  CHECK(text_of_line("{}: {} cells\n", std::string("a\nb\x1b"), 3) ==
        "a\\u000ab\\u001b: 3 cells\n");
}

TEST_CASE("widths are those of a terminal, whatever locale the program runs in") {
  REQUIRE(std::string(std::setlocale(LC_ALL, nullptr)) == "C");
  CHECK(display_width("abc") == 3);
  CHECK(display_width("\u00fc") == 1);
  CHECK(display_width("\u5e8f\u5217") == 4);
  CHECK(display_width("e\u0301") == 1);
  CHECK(display_width("\U0001f600") == 2);
  CHECK(std::string(std::setlocale(LC_ALL, nullptr)) == "C");
}

TEST_CASE("a text is cut between characters") {
  CHECK(cut_to("sequence 0", 10) == "sequence 0");
  CHECK(cut_to("sequence 0", 9) == "sequen...");
  CHECK(cut_to("\u5e8f\u5217\u5e8f\u5217", 6) == "\u5e8f...");  // 5 columns: the next takes two
  CHECK(cut_to("abcdef", 2) == "..");
  CHECK(cut_to("abcdef", 0).empty());
}

TEST_CASE("lines are broken at spaces, within a word only where it is longer than a line") {
  CHECK(wrap_words("", 10) == Lines{""});
  CHECK(wrap_words("one two", 7) == Lines{"one two"});
  CHECK(wrap_words("one two three", 8) == Lines{"one two", "three"});
  CHECK(wrap_words("one two three", 7) == Lines{"one two", "three"});
  CHECK(wrap_words("abcdefgh ij", 4) == Lines{"abcd", "efgh", "ij"});
  CHECK(wrap_words("\u5e8f\u5217", 1) == Lines{"\u5e8f", "\u5217"});  // no character is lost
  CHECK(paragraph("one two", 3) == "one\ntwo\n");
}

TEST_CASE("a pipe has no width") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  CHECK(terminal_columns(file) == 0);
  std::fclose(file);
}

}  // namespace terminal_test
}  // namespace kvbench::test
