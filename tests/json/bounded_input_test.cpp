#include "json/bounded_input.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <stdexcept>
#include <string>

#include "json/json.hpp"

namespace kvbench::test {
namespace bounded_input_test {

// The document, read with texts of at most `longest` bytes; the exception of a longer one says so.
Json read(const std::string& text, std::size_t longest) {
  std::istringstream in(text);
  BoundedInput input(in, longest, [] { throw std::length_error("long"); });
  return Json::parse(input.begin(), input.end());
}

std::string text_of(std::size_t bytes) { return "\"" + std::string(bytes, 'x') + "\""; }

TEST_CASE("a document is read as from a string, also over many blocks") {
  std::string text = "[";
  for (int i = 0; i < 50'000; ++i) {
    text += R"({"a\\\"":)" + std::to_string(i) + R"(,"b":"\u4f60\\"},)";
  }
  text += "0]";
  CHECK(read(text, 20) == Json::parse(text));
  CHECK(read("{}", 0) == Json::object());
  CHECK_THROWS_AS(read("", 5), Json::parse_error);
}

TEST_CASE("texts and names of exactly the limit are read, and none that is longer") {
  for (const std::size_t longest : {std::size_t{1}, std::size_t{10}, std::size_t{65'535},
                                    std::size_t{65'536}, std::size_t{200'000}}) {
    CAPTURE(longest);
    CHECK(read("[1," + text_of(longest) + "]", longest)[1].get<std::string>().size() == longest);
    CHECK_THROWS_AS(read("[1," + text_of(longest + 1) + "]", longest), std::length_error);
    CHECK_THROWS_AS(read("{" + text_of(longest + 1) + ":1}", longest), std::length_error);
  }
  CHECK_THROWS_AS(read(R"(["\"\"\""])", 5), std::length_error);
  CHECK(read(R"(["\"\"\""])", 6) == Json::array({"\"\"\""}));
  const std::string numbers(300'000, '1');
  CHECK(read("[" + numbers + "e-400000]", 300'010)[0].is_number());
  CHECK_THROWS_AS(read("[" + numbers + "e-400000]", 200'000), std::length_error);
}

TEST_CASE("of a text without an end no more than the limit and a block are held") {
  std::string text = "[\"";
  text.resize(50'000'000, 'x');
  std::istringstream in(text);
  BoundedInput input(in, 1000, [] { throw std::length_error("long"); });
  CHECK_THROWS_AS(Json::parse(input.begin(), input.end()), std::length_error);
  CHECK(in.tellg() < 100'000);
}

TEST_CASE("space without an end is not held either") {
  const std::string much(400'000, '\n');
  CHECK_THROWS_AS(read("[1," + much + "2]", 100'000), std::length_error);
  CHECK_THROWS_AS(read(much, 100'000), std::length_error);
  CHECK(read("[1," + much + "2]" + much, 400'000) == Json::array({1, 2}));
  std::string spread = "[0";
  for (int i = 0; i < 10; ++i) spread += "," + std::string(100'000, ' ') + "0";
  CHECK(read(spread + "]", 100'000).size() == 11);
}

TEST_CASE("the byte that was read last tells a byte of value 0 from the end") {
  for (const auto& [text, last] :
       {std::pair{std::string("[1]"), ']'}, std::pair{std::string("[1]\0{", 5), '\0'},
        std::pair{std::string("[1] "), ' '}}) {
    std::istringstream in(text);
    BoundedInput input(in, 5, [] {});
    CHECK(Json::parse(input.begin(), input.end()) == Json::array({1}));
    CHECK(input.last() == last);
  }
}

}  // namespace bounded_input_test
}  // namespace kvbench::test
