#include "json/pointer.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "system/error.hpp"

namespace kvbench::test {
namespace pointer_test {

TEST_CASE("faults are reported together, in order, each once") {
  ErrorList errors("a.json");
  CHECK(errors.none());
  CHECK_NOTHROW(errors.throw_if_any());
  errors.add("/b", "is wrong");
  errors.add("", "lacks a");
  errors.add("/b", "is wrong");
  errors.add_all({"elsewhere: broken"});
  const std::vector<std::string> expected = {"a.json: /b: is wrong", "a.json: lacks a",
                                             "elsewhere: broken"};
  CHECK(errors.messages() == expected);
  try {
    errors.throw_if_any();
    FAIL("nothing thrown");
  } catch (const InputError& error) {
    CHECK(error.messages() == expected);
  }
}

TEST_CASE("a message is one line") {
  ErrorList errors("a.json");
  errors.add("/a\nb", "is\x7f wrong");
  CHECK(errors.messages() == std::vector<std::string>{"a.json: /a\\u000ab: is\\u007f wrong"});
}

TEST_CASE("after the first thousand faults only their number is kept") {
  ErrorList errors("a.json");
  for (int i = 0; i < 1003; ++i) errors.add("/" + std::to_string(i), "is wrong");
  CHECK(errors.count() == 1003);
  REQUIRE(errors.messages().size() == 1001);
  CHECK(errors.messages().back().find(" 3 ") != std::string::npos);
}

TEST_CASE("a pointer is escaped as RFC 6901 says") {
  CHECK(child("/a", "b") == "/a/b");
  CHECK(child("", "a/b~c") == "/a~1b~0c");
  CHECK(child("/a", std::size_t{12}) == "/a/12");
}

}  // namespace pointer_test
}  // namespace kvbench::test
