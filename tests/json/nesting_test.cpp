#include "json/nesting.hpp"

#include <doctest/doctest.h>

#include <string>

namespace kvbench::test {
namespace nesting_test {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

// The levels of a text, found by asking for each number of them.
std::size_t levels_of(const std::string& text) {
  std::size_t levels = 0;
  while (nests_deeper(text, levels)) ++levels;
  return levels;
}

TEST_CASE("levels are counted, closed ones no more, and brackets in quotes not") {
  CHECK(levels_of("") == 0);
  CHECK(levels_of(nested(256)) == 256);
  CHECK(levels_of("{\"a\": " + nested(256) + "}") == 257);
  CHECK(nests_deeper(std::string(1 << 20, '['), kDeepestRecord));
  std::string siblings = "[";
  for (int i = 0; i < 1000; ++i) siblings += "[{}],";
  CHECK(levels_of(siblings + "0]") == 3);
  const std::string brackets(1000, '{');
  CHECK(levels_of("[\"" + brackets + "\"]") == 1);
  CHECK(levels_of("[\"\\\"" + brackets + "\"]") == 1);
  CHECK(levels_of("[\"\\\\\"," + brackets) == 1001);
  CHECK(levels_of("]]]]" + nested(2)) == 2);
  CHECK(levels_of("[\"a\\") == 1);  // no end
}

}  // namespace nesting_test
}  // namespace kvbench::test
