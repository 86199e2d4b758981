// Values of parameters against their tables (lib/algorithms/parameters).
#include <doctest/doctest.h>

#include <cstdint>

#include "parameters/parameter_table.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace values_test {

using Kind = Parameter::Kind;

Parameter of(Kind kind, double minimum, double maximum = 1e15, bool open = false,
             std::vector<std::string> choices = {}) {
  Parameter parameter;
  parameter.kind = kind;
  parameter.minimum = minimum;
  parameter.maximum = maximum;
  parameter.minimum_open = open;
  parameter.choices = std::move(choices);
  return parameter;
}

Value integer(std::int64_t value) { return value; }

Value accepted(const Parameter& parameter, Value value) {
  const auto error = check_value(parameter, value);
  CHECK_MESSAGE(!error, *error);
  return value;
}

// Whether a value is refused, unchanged and quoted in the message. The messages themselves are in
// tests/cli/bad_inputs/messages.txt.
bool refused(const Parameter& parameter, Value value) {
  const Value before = value;
  const auto error = check_value(parameter, value);
  CHECK(value == before);
  return error && error->find(to_string(before)) != std::string::npos;
}

TEST_CASE("integral reals are integers where integers are meant") {
  CHECK(accepted(of(Kind::kInteger, 1), 256.0) == integer(256));
  CHECK(accepted(of(Kind::kTokens, 1), 256.0) == integer(256));
  CHECK(refused(of(Kind::kInteger, 1), 2.5));
  CHECK(refused(of(Kind::kInteger, 1), 1e300));
}

TEST_CASE("integers are reals where reals are meant") {
  CHECK(accepted(of(Kind::kReal, 0), integer(2)) == Value(2.0));
}

TEST_CASE("bounds hold at their ends") {
  CHECK(accepted(of(Kind::kInteger, 1, 20), integer(1)) == integer(1));
  CHECK(accepted(of(Kind::kInteger, 1, 20), integer(20)) == integer(20));
  CHECK(refused(of(Kind::kInteger, 1, 20), integer(0)));
  CHECK(refused(of(Kind::kInteger, 1, 20), integer(21)));
  CHECK(accepted(of(Kind::kReal, 0, 1), 0.0) == Value(0.0));
  CHECK(refused(of(Kind::kReal, 0, 1, true), 0.0));
  CHECK(accepted(of(Kind::kReal, 0, 1, true), 1.0) == Value(1.0));
}

TEST_CASE("a number of tokens is an integer or a fraction") {
  const Parameter budget = of(Kind::kTokens, 1);
  CHECK(accepted(budget, 0.25) == Value(0.25));
  CHECK(refused(budget, 0.0));
  CHECK(refused(budget, 1.5));
  CHECK(refused(budget, -0.5));
  CHECK(refused(budget, true));
}

TEST_CASE("words are checked and the nearest is offered") {
  const Parameter pool = of(Kind::kChoice, 0, 0, false, {"max", "avg"});
  CHECK(accepted(pool, std::string("avg")) == Value(std::string("avg")));
  CHECK(refused(pool, std::string("mx")));
  CHECK(refused(pool, integer(3)));
  const Parameter c = of(Kind::kReal, 0, 1e15, true, {"theory"});
  CHECK(accepted(c, std::string("theory")) == Value(std::string("theory")));
  CHECK(accepted(c, integer(30)) == Value(30.0));
  CHECK(refused(c, std::string("teory")));
}

TEST_CASE("flags are true or false") {
  CHECK(accepted(of(Kind::kFlag, 0), true) == Value(true));
  CHECK(refused(of(Kind::kFlag, 0), integer(1)));
  CHECK(refused(of(Kind::kFlag, 0), std::string("true")));
}

TEST_CASE("token counts resolve to the floor of the double product") {
  const TokenCount tenth = TokenCount::fraction(0.1);
  CHECK(tenth.of(1792) == 179);
  CHECK(tenth.of(9) == 0);
  CHECK(TokenCount(4).of(1792) == 4);
}

TEST_CASE("values print as they would be written") {
  CHECK(to_string(Value(true)) == "true");
  CHECK(to_string(integer(-3)) == "-3");
  CHECK(to_string(Value(0.1)) == "0.1");
  CHECK(to_string(Value(4.0)) == "4.0");
  CHECK(to_string(Value(1e300)) == "1e+300");
  CHECK(to_string(Value(std::string("max"))) == "max");
}

TEST_CASE("the nearest word is a typo away, or there is none") {
  const std::vector<std::string> known = {"budget", "window", "kernel", "pool"};
  CHECK(nearest_word("budgt", known) == "budget");
  CHECK(nearest_word("Budget", known) == "budget");
  CHECK(nearest_word("bugdet", known) == "budget");
  CHECK(nearest_word("windows", known) == "window");
  CHECK(nearest_word("kern", known) == "kernel");
  CHECK_FALSE(nearest_word("temperature", known));
  CHECK_FALSE(nearest_word("x", known));
  CHECK_FALSE(nearest_word("", known));
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("", "abc") == 3);
}

}  // namespace values_test
}  // namespace kvbench
