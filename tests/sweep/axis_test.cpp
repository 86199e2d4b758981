// Axes that are right; wrong ones are in tests/cli/bad_inputs/sweeps.json.
#include "sweep/axis.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "system/error.hpp"

namespace kvbench {
namespace axis_test {

using nlohmann::json;

Parameter number(Parameter::Kind kind, double minimum = -1e15) {
  Parameter parameter;
  parameter.name = std::string("x");
  parameter.kind = kind;
  parameter.minimum = minimum;
  return parameter;
}

const Parameter kWhole = number(Parameter::Kind::kInteger);
const Parameter kReal = number(Parameter::Kind::kReal);
const Parameter kTokens = number(Parameter::Kind::kTokens, 1);

json expanded(const std::string& text, const Parameter& parameter) {
  ErrorList errors("f");
  const auto axis = expand_axis(json::parse(text), parameter, "/x", errors);
  errors.throw_if_any();
  json values = json::array();
  for (const Value& value : axis->values) values.push_back(value_json(value));
  return values;
}

// Numbers and their types alike: 4 is not 4.0.
void check_axis(const std::string& text, const Parameter& parameter, const std::string& values) {
  CAPTURE(text);
  CHECK(expanded(text, parameter).dump() == json::parse(values).dump());
}

TEST_CASE("a single value is an axis of one") {
  check_axis("4", kWhole, "[4]");
  check_axis("4.0", kWhole, "[4]");
  check_axis("4", kReal, "[4.0]");
  check_axis("-0.0", kReal, "[0.0]");
}

TEST_CASE("a list keeps its order") {
  check_axis("[4, 1, 16.0]", kWhole, "[4, 1, 16]");
  check_axis("[0.5, 64]", kTokens, "[0.5, 64]");
}

TEST_CASE("a range includes both ends") {
  check_axis(R"({"range": [1, 4, 1]})", kWhole, "[1, 2, 3, 4]");
  check_axis(R"({"range": [64, 1024, 320]})", kTokens, "[64, 384, 704, 1024]");
  check_axis(R"({"range": [3, 3, 5]})", kWhole, "[3]");
  check_axis(R"({"range": [10, 1, -3]})", kWhole, "[10, 7, 4, 1]");
}

TEST_CASE("a range of decimals gives the decimals that a person would list") {
  check_axis(R"({"range": [0.1, 0.5, 0.1]})", kReal, "[0.1, 0.2, 0.3, 0.4, 0.5]");
  check_axis(R"({"range": [-0.3, 0.3, 0.1]})", kReal, "[-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3]");
  check_axis(R"({"range": [0.25, 1.0, 0.25]})", kReal, "[0.25, 0.5, 0.75, 1.0]");
  CHECK(expanded(R"({"range": [0, 1, 0.001]})", kReal).size() == 1001);
}

TEST_CASE("pow2 includes both ends") {
  check_axis(R"({"pow2": [6, 9]})", kWhole, "[64, 128, 256, 512]");
  check_axis(R"({"pow2": [0, 0]})", kWhole, "[1]");
  check_axis(R"({"pow2": [-3, -1]})", kReal, "[0.125, 0.25, 0.5]");
  check_axis(R"({"pow2": [-2, -1]})", kTokens, "[0.25, 0.5]");
  check_axis(R"({"pow2": [40, 41]})", kWhole, "[1099511627776, 2199023255552]");
}

TEST_CASE("logspace gives its ends exactly") {
  check_axis(R"({"logspace": [1, 1000, 4]})", kReal, "[1.0, 10.0, 100.0, 1000.0]");
  check_axis(R"({"logspace": [0.001, 0.1, 3]})", kReal, "[0.001, 0.01, 0.1]");
  check_axis(R"({"logspace": [0.3, 0.3, 1]})", kReal, "[0.3]");
  const json values =
      expanded(R"({"logspace": [0.1234567890123456, 7.654321098765432, 9]})", kReal);
  REQUIRE(values.size() == 9);
  CHECK(values.front() == 0.1234567890123456);
  CHECK(values.back() == 7.654321098765432);
  const double ratio = std::pow(7.654321098765432 / 0.1234567890123456, 1.0 / 8.0);
  for (std::size_t i = 1; i < values.size(); ++i) {
    CHECK(values[i].get<double>() / values[i - 1].get<double>() ==
          doctest::Approx(ratio).epsilon(1e-11));
  }
}

TEST_CASE("logspace is rounded and said once for integers") {
  check_axis(R"({"logspace": [1, 10, 10]})", kWhole, "[1, 2, 3, 4, 5, 6, 8, 10]");
  check_axis(R"({"logspace": [10, 1, 4]})", kWhole, "[10, 5, 2, 1]");
  check_axis(R"({"logspace": [16, 1024, 4]})", kTokens, "[16, 64, 256, 1024]");
  check_axis(R"({"logspace": [0.01, 0.1, 2]})", kTokens, "[0.01, 0.1]");
}

TEST_CASE("every value of an axis is checked") {
  ErrorList errors("f");
  CHECK_FALSE(expand_axis(json::parse(R"([1, 0, "all", 0.5, 2.5])"), kTokens, "/x", errors));
  CHECK(errors.count() == 3);
}

TEST_CASE("a list of words is an axis") {
  Parameter choice;
  choice.kind = Parameter::Kind::kChoice;
  choice.choices = {"max", "avg"};
  CHECK(expanded(R"(["avg", "max"])", choice) == json({"avg", "max"}));
}

TEST_CASE("memory in place of a number of tokens: a number or any axis of numbers") {
  Parameter budget = kTokens;
  budget.takes_memory = true;
  check_axis(R"({"memory": 0.35})", budget, R"([{"memory": 0.35}])");
  check_axis(R"({"memory": 1})", budget, R"([{"memory": 1.0}])");
  check_axis(R"({"memory": [0.5, 0.25]})", budget, R"([{"memory": 0.5}, {"memory": 0.25}])");
  check_axis(R"({"memory": {"range": [0.1, 0.3, 0.1]}})", budget,
             R"([{"memory": 0.1}, {"memory": 0.2}, {"memory": 0.3}])");
  check_axis(R"([64, {"memory": 0.5}, 0.5])", budget, R"([64, {"memory": 0.5}, 0.5])");
}

}  // namespace axis_test
}  // namespace kvbench
