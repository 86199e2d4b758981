#include "output/table.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "output/terminal.hpp"

namespace kvbench::test {
namespace table_test {

TEST_CASE("columns are as wide as their longest text, numbers on the right") {
  Table table({{"name", Align::kLeft}, {"n"}, {"what", Align::kLeft}});
  table.add({"a", "1", "first"});
  table.add({"longer", "1000", ""});
  CHECK(table.text() ==
        "name       n  what\n"
        "a          1  first\n"
        "longer  1000\n");
}

TEST_CASE("a column can be wider than its texts, with another gap and an indent") {
  Table table({{"a", Align::kLeft, 4}, {"b", Align::kRight, 3}}, " ", "> ");
  table.add({"1", "2"});
  CHECK(table.text() ==
        "> a      b\n"
        "> 1      2\n");
}

TEST_CASE("a row of fewer texts spans the rest and makes no column wider") {
  Table table({{"a"}, {"b"}, {"c"}});
  table.add({"1", "2", "3"});
  table.add_spanning({"4", "nothing is known of it"});
  CHECK(table.text() ==
        "a  b  c\n"
        "1  2  3\n"
        "4  nothing is known of it\n");
}

TEST_CASE("without titles there is no line for them") {
  Table table({{"", Align::kLeft, 3}, {""}});
  CHECK(table.text().empty());
  table.add({"x", "7"});
  CHECK(table.text() == "x    7\n");
}

TEST_CASE("letters of several bytes are one column wide") {
  Table table({{"a"}, {"b", Align::kLeft}});
  table.add({"\xc3\xa9", "1"});
  CHECK(table.text() ==
        "a  b\n"
        "\xc3\xa9  1\n");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

TEST_CASE("wide characters take two columns, combining ones none") {
  Table table({{"a", Align::kLeft}, {"b"}});
  table.add({"\u5e8f\u5217", "1"});
  table.add({"e\u0301", "2"});
  CHECK(table.text() ==
        "a     b\n"
        "\u5e8f\u5217  1\n"
        "e\u0301     2\n");
}

TEST_CASE("a text is one line, whatever it holds") {
  Table table({{"a", Align::kLeft}, {"b"}});
  table.add({"x\ny\x1b[41m", "1"});
  CHECK(table.text() ==
        "a                   b\n"
        "x\\u000ay\\u001b[41m  1\n");
}

TEST_CASE("where there is room for all, the width of the terminal changes nothing") {
  Table table({{"name", Align::kLeft}, {"n", Align::kRight, 5, 1}});
  table.add({"a", "1"});
  CHECK(table.text(11) == table.text());
  CHECK(table.text(10) == "name  n\na     1\n");  // no wider than its texts
}

TEST_CASE("texts on the left are wrapped before anything is dropped") {
  Table table({{"name", Align::kLeft}, {"n", Align::kRight, 0, 1}, {"what", Align::kLeft}});
  table.add({"a", "1", "several words that are longer than the line"});
  CHECK(table.text(40) ==
        "name  n  what\n"
        "a     1  several words that are longer\n"
        "         than the line\n");
}

TEST_CASE("columns are dropped in their order, then texts are wrapped further, within words") {
  Table table({{"name", Align::kLeft},
               {"error"},
               {"first", Align::kRight, 0, 1},
               {"second", Align::kRight, 0, 2},
               {"what", Align::kLeft, 0, 3}});
  table.add({"balancekv_prefill", "0.1234", "1", "2", "some words that tell of it"});
  CHECK(lines_of(table.text(60))[0] == "name                error  second  what");
  CHECK(lines_of(table.text(50))[0] == "name                error  what");
  CHECK(lines_of(table.text(30))[0] == "name                error");
  CHECK(table.text(20) ==
        "name           error\n"
        "balancekv_pr  0.1234\n"
        "efill\n");
}

TEST_CASE("no line is longer than the terminal as long as the numbers fit") {
  Table table({{"a", Align::kLeft}, {"n"}, {"b", Align::kLeft}, {"c", Align::kRight, 9, 1}}, " ");
  table.add(
      {"a name of several words", "0.125", "\u5e8f\u5217\u5e8f\u5217\u5e8f\u5217\u5e8f", "7"});
  table.add_spanning({"another", "what is said of it reaches over the rest of the line"});
  for (std::size_t columns = 20; columns < 120; ++columns) {
    for (const std::string& line : lines_of(table.text(columns))) {
      CAPTURE(line);
      CHECK(display_width(line) <= columns);
    }
  }
}

}  // namespace table_test
}  // namespace kvbench::test
