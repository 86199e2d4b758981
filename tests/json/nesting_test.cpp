#include "json/nesting.hpp"

#include <doctest/doctest.h>

#include <string>

namespace kvbench::test {
namespace nesting_test {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST_CASE("levels are counted, closed ones no more, and brackets in quotes not") {
  CHECK(extent_of("").levels == 0);
  CHECK(extent_of(nested(256)).levels == 256);
  CHECK(extent_of("{\"a\": " + nested(256) + "}").levels == 257);
  CHECK(extent_of(std::string(1 << 20, '[')).levels == 1 << 20);
  std::string siblings = "[";
  for (int i = 0; i < 1000; ++i) siblings += "[{}],";
  CHECK(extent_of(siblings + "0]").levels == 3);
  const std::string brackets(1000, '{');
  CHECK(extent_of("[\"" + brackets + "\"]").levels == 1);
  CHECK(extent_of("[\"\\\"" + brackets + "\"]").levels == 1);
  CHECK(extent_of("[\"\\\\\"," + brackets).levels == 1001);
  CHECK(extent_of("]]]]" + nested(2)).levels == 2);
}

TEST_CASE("the memory of a document is told from its signs, names and texts") {
  using namespace json_bytes;
  CHECK(extent_of("").memory == 0);
  CHECK(extent_of("[1,2,3]").memory == kList + 4 * kValue);
  CHECK(extent_of("[[],{}]").memory == 2 * (kList + 2 * kValue) + 2 * kValue + kObject);
  CHECK(extent_of(R"({"ab":1})").memory == kValue + kObject + kName + kText + 4);
  CHECK(extent_of(R"(["[,:{"])").memory == kList + 2 * kValue + kText + 6);
}

TEST_CASE("values are counted by what begins or parts them, outside of quotes") {
  CHECK(extent_of("[1,2,{\"a\":[]}]").values == 5);
  CHECK(extent_of(R"(["[[[,,,\",{"])").values == 1);
  CHECK(extent_of(R"(["[[[\\",{"])").values == 3);
  CHECK(extent_of("").values == 0);
}

TEST_CASE("names are counted for each object by itself") {
  CHECK(extent_of(R"({"a": 1, "b": {"c": 1, "d": 2, "e": 3}, "f": 0})").names == 3);
  CHECK(extent_of(R"([{"a": 1}, {"a": 1}, {"a": 1, "a": 2}])").names == 2);
  CHECK(extent_of(R"(["::::", {}])").names == 0);
  const std::string deep(1000, '[');
  CHECK(extent_of(deep + R"({"a": 1, "b": 2})").names == 2);
}

TEST_CASE("the longest text, number or space is told in bytes") {
  CHECK(extent_of("").longest == 0);
  CHECK(extent_of(R"({"a":"abcdefgh","b":1})").longest == 10);  // with its quotes
  CHECK(extent_of(R"(["\"\"\"\"\""])").longest == 12);
  CHECK(extent_of("[123456789012,1]").longest == 12);
  CHECK(extent_of("[1," + std::string(50, ' ') + "2]").longest == 51);
  CHECK(extent_of("[\"abc").longest == 4);  // no end
  CHECK(extent_of("[\"abc\\").longest == 5);
}

}  // namespace nesting_test
}  // namespace kvbench::test
