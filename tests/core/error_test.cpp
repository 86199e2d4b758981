// The errors' own types, and the one list that collects what is wrong with the input.
#include "system/error.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "system/shortened.hpp"

namespace kvbench::test {
namespace error_test {

std::vector<std::string> thrown(const ErrorList& errors) {
  try {
    errors.throw_if_any();
  } catch (const InputError& error) {
    return error.messages();
  }
  return {};
}

TEST_CASE("a list throws all that it collected, in order, each once") {
  ErrorList errors("a.json");
  CHECK(errors.none());
  CHECK(thrown(errors).empty());
  errors.add("/x", "is 1");
  errors.add("", "is empty");
  errors.add("/x", "is 1");
  errors.add("as it is");
  errors.gather([] { throw InputError(std::vector<std::string>{"one", "two", "as it is"}); });
  errors.gather([] {});
  CHECK(errors.count() == 5);
  CHECK(thrown(errors) ==
        std::vector<std::string>{"a.json: /x: is 1", "a.json: is empty", "as it is", "one", "two"});
}

TEST_CASE("a message that quotes a very long word keeps its beginning and its end") {
  const std::string most(4096, 'x');
  CHECK(shortened(most) == most);
  CHECK(shortened(most + "y") ==
        std::string(3072, 'x') + " ... 1 bytes ... " + std::string(1023, 'x') + "y");
  std::string wide = "a";  // characters of three bytes, across both cuts
  for (int i = 0; i < 2000; ++i) wide += "\u4f60";
  const std::string cut = shortened(wide);
  CHECK(cut.find("a\u4f60") == 0);
  CHECK(cut.find("\u4f60 ... 1908 bytes ... \u4f60") == 3067);
  ErrorList errors("a.json");
  errors.add("/" + std::string(1'000'000, 'x'),
             "unknown " + std::string(1'000'000, 'y') + "; do Z");
  REQUIRE(thrown(errors).size() == 1);
  const std::string said = thrown(errors)[0];
  CHECK(said.size() < 5000);
  CHECK(said.find("a.json: /xxx") == 0);
  CHECK(said.find("yyy; do Z") == said.size() - 9);
}

TEST_CASE("only input is collected") {
  ErrorList errors;
  CHECK_THROWS_AS(errors.gather([] { throw IoError("disk full"); }), IoError);
  CHECK_THROWS_AS(errors.gather([] { throw CellError("overflow"); }), CellError);
  CHECK_THROWS_AS(errors.gather([] { throw std::logic_error("bug"); }), std::logic_error);
  CHECK(errors.none());
}

TEST_CASE("a message is one line, and after the first thousand only their number is kept") {
  ErrorList errors("a\nb");
  errors.add("/\t", "is \x7f");
  CHECK(thrown(errors) == std::vector<std::string>{"a\\u000ab: /\\u0009: is \\u007f"});
  for (int i = 0; i < 1200; ++i) errors.add("/" + std::to_string(i), "is wrong");
  CHECK(errors.count() == 1201);
  REQUIRE(thrown(errors).size() == 1001);
  CHECK(thrown(errors).back().find("a\\u000ab: and 201 more") == 0);
}

TEST_CASE("a bug's reasons are told from the outermost to the first") {
  const auto reasons = [] {
    try {
      try {
        try {
          throw std::out_of_range("index 7");
        } catch (const std::exception&) {
          std::throw_with_nested(BugError("computing a cell"));
        }
      } catch (const std::exception&) {
        std::throw_with_nested(BugError("running a sweep"));
      }
    } catch (const BugError& error) {
      return reasons_of(error);
    }
    return std::vector<std::string>{};
  }();
  CHECK(reasons == std::vector<std::string>{"running a sweep", "computing a cell", "index 7"});
  CHECK(reasons_of(std::runtime_error("alone")) == std::vector<std::string>{"alone"});
}

TEST_CASE("no type is taken for another where it is caught") {
  // Each is caught by its own name or not at all: none derives from another.
  const auto is_input = [](const auto& error) {
    try {
      throw error;
    } catch (const InputError&) {
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  CHECK(is_input(InputError("x")));
  CHECK_FALSE(is_input(IoError("x")));
  CHECK_FALSE(is_input(DeviceError("x")));
  CHECK_FALSE(is_input(CellError("x")));
  CHECK_FALSE(is_input(BugError("x")));
}

}  // namespace error_test
}  // namespace kvbench::test
