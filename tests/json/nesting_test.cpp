#include "json/nesting.hpp"

#include <doctest/doctest.h>

#include <string>

namespace kvbench::test {
namespace {

std::string nested(int levels) {
  const auto count = static_cast<std::size_t>(levels);
  return std::string(count, '[') + std::string(count, ']');
}

TEST_CASE("levels are counted, closed ones no more, and brackets in quotes not") {
  CHECK_FALSE(nests_too_deep(nested(kDeepestRecord)));
  CHECK(nests_too_deep(nested(kDeepestRecord + 1)));
  CHECK(nests_too_deep("{\"a\": " + nested(kDeepestRecord) + "}"));
  CHECK(nests_too_deep(std::string(1 << 20, '[')));
  std::string siblings = "[";
  for (int i = 0; i < 1000; ++i) siblings += "[{}],";
  CHECK_FALSE(nests_too_deep(siblings + "0]"));
  const std::string brackets(1000, '{');
  CHECK_FALSE(nests_too_deep("[\"" + brackets + "\"]"));
  CHECK_FALSE(nests_too_deep("[\"\\\"" + brackets + "\"]"));
  CHECK(nests_too_deep("[\"\\\\\"," + brackets));
}

TEST_CASE("values are counted by what begins or parts them, outside of quotes") {
  CHECK_FALSE(is_crowded("[1,2,{\"a\":[]}]", 5));
  CHECK(is_crowded("[1,2,{\"a\":[]}]", 4));
  CHECK_FALSE(is_crowded(R"(["[[[,,,\",{"])", 1));
  CHECK(is_crowded(R"(["[[[\\",{"])", 2));
  CHECK_FALSE(is_crowded("", 0));
}

}  // namespace
}  // namespace kvbench::test
