#include "json/reader.hpp"

#include <doctest/doctest.h>

#include <string>

namespace kvbench::test {
namespace reader_test {

using nlohmann::json;

TEST_CASE("every unknown key of an object is a fault at its place") {
  ErrorList errors("a.json");
  CHECK(read_object({{"limit", 1}, {"limt", 2}, {"colour", 3}}, {"limit", "where"}, "a bound", "/b",
                    errors));
  REQUIRE(errors.count() == 2);
  CHECK(errors.messages()[0].find("a.json: /b/colour: ") == 0);
  CHECK(errors.messages()[1].find("a.json: /b/limt: ") == 0);
  CHECK(errors.messages()[1].find("limit") != std::string::npos);  // the key that was meant
}

TEST_CASE("what is not an object is a fault and is not read") {
  for (const json& given : {json::array(), json(7), json(nullptr)}) {
    CAPTURE(given.dump());
    ErrorList errors("a.json");
    CHECK(!read_object(given, {"limit"}, "a bound", "/b", errors));
    CHECK(errors.count() == 1);
  }
}

TEST_CASE("a member is found in objects alone") {
  const json object = {{"a", nullptr}};
  REQUIRE(member(object, "a") != nullptr);
  CHECK(member(object, "a")->is_null());
  CHECK(member(object, "b") == nullptr);
  CHECK(member(json::array({1}), "a") == nullptr);
}

TEST_CASE("a flag is true or false") {
  ErrorList errors("a.json");
  CHECK(read_flag(true, "/a", errors) == true);
  CHECK(read_flag(false, "/a", errors) == false);
  CHECK(errors.none());
  CHECK(!read_flag(1, "/a", errors));
  CHECK(!read_flag("true", "/b", errors));
  CHECK(errors.count() == 2);
}

}  // namespace reader_test
}  // namespace kvbench::test
