// A parameter struct and its table: defaults, and what is read from a checked assignment.
#include <doctest/doctest.h>

#include <stdexcept>
#include <variant>

#include "algorithms/registry.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace parameter_table_test {

enum class Taste { kSweet, kSour };

struct Base {
  double rate = 0.5;
};

struct SecondBase {
  double weight = 0.25;
};

struct Parameters : Base, SecondBase {
  TokenCount budget;
  TokenCount sinks = 4;
  std::optional<Index> length;       // none: auto
  std::optional<TokenCount> recent;  // or a share
  std::optional<double> share;
  bool flag = true;
  Taste taste = Taste::kSour;
};

ParameterTable<Parameters> table(Parameters defaults = {}) {
  using P = Parameters;
  ParameterTable<Parameters> out(defaults);
  out.add(
      {field("budget", &P::budget, "required").at_least(1).required(),
       field("sinks", &P::sinks, "a count"),
       field("length", &P::length, "a number or a word").at_least(1).at_most(9).or_word("auto"),
       field("recent", &P::recent, "one alternative"),
       field("share", &P::share, "the other").above(0), field("flag", &P::flag, "a flag"),
       field("taste", &P::taste, {{"sweet", Taste::kSweet}, {"sour", Taste::kSour}}, "a choice")});
  out.add(std::vector<Field<Base>>{field("rate", &Base::rate, "of what it is derived from")});
  out.add(std::vector<Field<SecondBase>>{
      field("weight", &SecondBase::weight, "of the second of these")});
  return out;
}

const Parameter& row(const std::vector<Parameter>& rows, const std::string& name) {
  for (const Parameter& each : rows) {
    if (each.name == name) return each;
  }
  throw std::out_of_range(name);
}

TEST_CASE("rows have the struct's defaults, and none where none is meant") {
  const std::vector<Parameter> rows = table().rows();
  CHECK(!row(rows, "budget").default_value);
  CHECK(row(rows, "sinks").default_value == Value{std::int64_t{4}});
  CHECK(row(rows, "length").default_value == Value{std::string("auto")});
  CHECK(!row(rows, "recent").default_value);
  CHECK(!row(rows, "share").default_value);
  CHECK(row(rows, "flag").default_value == Value{true});
  CHECK(row(rows, "taste").default_value == Value{std::string("sour")});
  CHECK(row(rows, "rate").default_value == Value{0.5});
  CHECK(row(rows, "weight").default_value == Value{0.25});
  Parameters other;
  other.length = 3;
  other.sinks = TokenCount::fraction(0.25);
  CHECK(row(table(other).rows(), "length").default_value == Value{std::int64_t{3}});
  CHECK(row(table(other).rows(), "sinks").default_value == Value{0.25});
}

TEST_CASE("rows have kinds, ranges and choices") {
  const std::vector<Parameter> rows = table().rows();
  CHECK(row(rows, "budget").kind == Parameter::Kind::kTokens);
  CHECK(row(rows, "recent").kind == Parameter::Kind::kTokens);
  CHECK(row(rows, "length").kind == Parameter::Kind::kInteger);
  CHECK(row(rows, "share").kind == Parameter::Kind::kReal);
  CHECK(row(rows, "flag").kind == Parameter::Kind::kFlag);
  CHECK(row(rows, "taste").kind == Parameter::Kind::kChoice);
  CHECK(row(rows, "taste").choices == std::vector<std::string>{"sweet", "sour"});
  CHECK(row(rows, "length").choices == std::vector<std::string>{"auto"});
  CHECK(row(rows, "length").maximum == 9);
  CHECK(row(rows, "budget").minimum == 1);
  CHECK(!row(rows, "budget").minimum_open);
  CHECK(row(rows, "share").minimum_open);
}

TEST_CASE("the struct has what was given, and its defaults for the rest") {
  Params params;
  params.set("budget", 0.5);
  params.set("length", std::int64_t{7});
  params.set("recent", std::int64_t{3});
  params.set("flag", false);
  params.set("taste", std::string("sweet"));
  params.set("rate", std::int64_t{2});  // an integer is promoted
  params.set("weight", 0.75);
  const Parameters p = table().read(params);
  CHECK(p.budget.of(9) == 4);
  CHECK(p.sinks.of(9) == 4);
  CHECK(p.length == 7);
  CHECK(p.recent == TokenCount(3));
  CHECK(!p.share);
  CHECK(!p.flag);
  CHECK(p.taste == Taste::kSweet);
  CHECK(p.rate == 2.0);
  CHECK(p.weight == 0.75);
}

TEST_CASE("a value that the check would refuse is not read as the default") {
  Params params;
  params.set("taste", std::string("bitter"));
  CHECK_THROWS_AS(table().read(params), std::out_of_range);
  Params number;
  number.set("taste", std::int64_t{1});
  CHECK_THROWS_AS(table().read(number), std::bad_variant_access);
}

TEST_CASE("a word leaves a number empty, also where another is the default") {
  Parameters other;
  other.length = 3;
  Params params;
  params.set("length", std::string("auto"));
  CHECK(!table(other).read(params).length);
}

TEST_CASE("an algorithm's functions are asked with its struct") {
  TypedAlgorithm<Parameters> typed;
  typed.parameters = table();
  typed.randomised = [](const Parameters& p) { return p.taste == Taste::kSweet; };
  typed.skip_reason = [](const Parameters& p, const StreamShape&, Index prompt) {
    return std::optional("budget " + std::to_string(p.budget.of(prompt)));
  };
  const AlgorithmDescription algorithm = typed;
  CHECK(!algorithm.randomised(params_for(algorithm, {{"budget", std::int64_t{1}}})));
  CHECK(algorithm.randomised(
      params_for(algorithm, {{"budget", std::int64_t{1}}, {"taste", std::string("sweet")}})));
  CHECK(algorithm.skip_reason(params_for(algorithm, {{"budget", 0.5}}), {}, 20) == "budget 10");
  CHECK(!algorithm.model_work);
  CHECK(!algorithm.create);
}

TEST_CASE("defaults are accepted by their own rows, and alternatives name rows") {
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    CAPTURE(algorithm.id);
    for (const Parameter& parameter : algorithm.parameters) {
      CAPTURE(parameter.name);
      if (!parameter.default_value) continue;
      Value value = *parameter.default_value;
      CHECK(!check_value(parameter, value));
      CHECK(value == *parameter.default_value);
    }
    for (const ExactlyOneOf& choice : algorithm.exactly_one_of) {
      for (const auto& names : choice.alternatives) {
        for (const std::string& name : names) CHECK_NOTHROW(row(algorithm.parameters, name));
      }
    }
  }
}

}  // namespace parameter_table_test
}  // namespace kvbench::test
