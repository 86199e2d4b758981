#include "json/document.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "system/error.hpp"

namespace kvbench::test {
namespace document_test {

using nlohmann::json;

json parsed(const std::string& text, ErrorList& errors) {
  return parse_document(text, "a.json", errors);
}

TEST_CASE("comments are not part of the document") {
  ErrorList errors("a.json");
  CHECK(parsed("{ // one\n \"a\": /* two */ [1, 2.5, \"// three\"]}", errors) ==
        json{{"a", {1, 2.5, "// three"}}});
  CHECK(errors.none());
}

TEST_CASE("of a key given twice the first holds, and its place is a fault") {
  ErrorList errors("a.json");
  CHECK(parsed(R"({"a": {"b": 1, "b": 2, "c": 3}})", errors) == json{{"a", {{"b", 1}, {"c", 3}}}});
  REQUIRE(errors.count() == 1);
  CHECK(errors.messages()[0].find("a.json: /a/b: ") == 0);
}

TEST_CASE("a syntax error names its line and column") {
  ErrorList errors("a.json");
  for (const auto& [text, place] :
       {std::pair{"{\"a\": 1,\n  ?}", "a.json:2:3: "}, {"?", "a.json:1:1: "}}) {
    CAPTURE(text);
    try {
      parsed(text, errors);
      FAIL("no error");
    } catch (const InputError& error) {
      CHECK(std::string(error.what()).find(place) == 0);
    }
  }
}

TEST_CASE("the deepest nesting is read, one level more is a fault") {
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  ErrorList errors("a.json");
  parsed(nested(kDeepestNesting), errors);
  CHECK(errors.none());
  parsed(nested(kDeepestNesting + 1), errors);
  CHECK(errors.count() == 1);
}

TEST_CASE("sets replace, make and append, in order") {
  ErrorList errors("a.json");
  json document = {{"list", {1, 2}}, {"a/b", 1}};
  apply_sets(document,
             {"/list/0=7", "/list/-=[8]", "/new/inner=word", "/a~1b=null", "/list/1={\"k\": 1}",
              "/list/1/k=2"},
             errors);
  CHECK(errors.none());
  CHECK(document ==
        json{{"list", {7, {{"k", 2}}, {8}}}, {"new", {{"inner", "word"}}}, {"a/b", nullptr}});
}

TEST_CASE("names with dots between stand for a pointer") {
  ErrorList errors("a.json");
  json document = {{"list", {1, {{"k", 2}}}}, {"a/b~", {{"c", 3}}}};
  apply_sets(document, {"list.0=7", "list.1.k=[8]", "new.inner=word", "a/b~.c=1.5", "top=0"},
             errors);
  CHECK(errors.none());
  CHECK(document == json{{"list", {7, {{"k", {8}}}}},
                         {"a/b~", {{"c", 1.5}}},
                         {"new", {{"inner", "word"}}},
                         {"top", 0}});
}

TEST_CASE("a set that cannot be applied is a fault and changes nothing") {
  const json before = {{"list", {1, 2}}, {"number", 3}};
  for (const char* set : {"", "=1", "list", ".list=1", "list.=1", "a..b=1", "/=1", "/list",
                          "/list/3=1", "/list/x=1", "/number/x=1", "/a=\xff"}) {
    CAPTURE(set);
    ErrorList errors("a.json");
    json document = before;
    apply_sets(document, {set}, errors);
    CHECK(errors.count() == 1);
    CHECK(document == before);
  }
}

TEST_CASE("the path of a set may be as deep as a document nests") {
  for (const int depth : {64, 65, 100'000}) {
    CAPTURE(depth);
    std::string path;
    for (int i = 0; i < depth; ++i) path += "/a";
    ErrorList errors("a.json");
    json document = json::object();
    apply_sets(document, {path + "=1"}, errors);
    CHECK(errors.none() == (depth == 64));
    CHECK(document.empty() == (depth > 64));
    if (depth > 64) CHECK(errors.messages()[0].find("nests at most 64") != std::string::npos);
  }
}

TEST_CASE("long values are cut where they are shown") {
  CHECK(shown(json{{"a", "b"}}) == R"({"a":"b"})");
  CHECK(shown(json(std::string(500, 'x'))).size() < 130);
}

}  // namespace document_test
}  // namespace kvbench::test
