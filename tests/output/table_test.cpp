#include "output/table.hpp"

#include <doctest/doctest.h>

namespace kvbench::test {
namespace {

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

}  // namespace
}  // namespace kvbench::test
