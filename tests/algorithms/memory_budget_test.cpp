// Budgets given as memory, from shapes alone; that counted memory is what was asked for is in
// tests/conformance/memory_test.cpp.
#include "algorithms/memory_budget.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

#include "parameters/parameter_table.hpp"
#include "support/given.hpp"

namespace kvbench::test {
namespace memory_budget_test {

StreamShape shape_of(Index tokens, Index window = 0) {
  StreamShape shape;
  shape.tokens = tokens;
  shape.d = 4;
  shape.dv = 4;
  shape.heads_per_kv = 2;
  shape.window = window;
  return shape;
}

Params with_fraction(const std::string& id, double fraction, Given more = {}) {
  more.emplace_back("budget", MemoryBudget{fraction});
  return params_for(algorithm_named(id), more);
}

// The tokens that a memory is solved to, or 0 and why not.
std::pair<Index, std::string> solved(const std::string& id, double fraction, const Given& more,
                                     const StreamShape& shape, Index prompt) {
  auto result = solve_memory(algorithm_named(id), with_fraction(id, fraction, more), shape, prompt,
                             /*element_bytes=*/2);
  if (const auto* why = std::get_if<std::string>(&result)) return {0, *why};
  const Params& params = std::get<Params>(result);
  CHECK_FALSE(asks_for_memory(params));
  return {std::get<MemoryBudget>(params.at("budget")).solved, ""};
}

Index tokens_of(const std::string& id, double fraction, const Given& more = {}, Index window = 0) {
  return solved(id, fraction, more, shape_of(100, window), 60).first;
}

TEST_CASE("bisection finds the last that fits, none below the first, and all that fit") {
  for (Index limit = -1; limit <= 9; ++limit) {
    CAPTURE(limit);
    Index calls = 0;
    const auto found = largest_that_fits(0, 9, [&](Index x) {
      ++calls;
      return x <= limit;
    });
    CHECK(found == (limit < 0 ? std::nullopt : std::optional(limit)));
    CHECK(calls <= 6);
  }
  CHECK(largest_that_fits(3, 3, [](Index) { return true; }) == 3);
  CHECK_FALSE(largest_that_fits(3, 3, [](Index) { return false; }));
  // The last may fit though those before it do not: whole prompts need no weights.
  CHECK(largest_that_fits(0, 9, [](Index x) { return x <= 4 || x == 9; }) == 9);
  // A saw: what fits again within reach is found, and what fits further on is not looked for.
  const auto saw = [](Index x) { return x <= 2 || (x >= 4 && x <= 5); };
  CHECK(largest_that_fits(0, 9, saw, 3) == 5);
  const auto further = [](Index x) { return x <= 2 || x == 6; };
  CHECK(largest_that_fits(0, 9, further, 2) == 2);
  CHECK(largest_that_fits(0, 9, further, 3) == 6);
}

TEST_CASE("budgets solved by hand: 100 tokens of 16 bytes, 60 of them the prompt") {
  CHECK(tokens_of("window", 0.5) == 50);
  CHECK(tokens_of("window", 0.509) == 50);
  CHECK(tokens_of("window", 1.0) == 100);
  CHECK(tokens_of("streaming_llm", 0.35, {{"sinks", count_of(4)}}) == 35);
  // 16 bytes and a score of each of two heads, for one token more than the budget.
  CHECK(tokens_of("h2o", 0.5) == 800 / 24 - 1);
  CHECK(tokens_of("key_attention", 0.5) == 800 / 24 - 1);
  CHECK(tokens_of("keyformer", 0.5) == 800 / 32 - 1);  // score and noise
  CHECK(tokens_of("keyformer", 0.5, {{"semantics", word_of("released")}}) == 800 / 32);
  // Forty decoded tokens are kept besides.
  CHECK(tokens_of("snapkv", 0.5, {{"window", count_of(4)}}) == 10);
  CHECK(tokens_of("kcenter", 0.5) == 10);
  CHECK(tokens_of("kcenter", 0.5, {{"recent", count_of(4)}, {"weights", word_of("size")}}) ==
        4 + (160 - 64) / 20);
  CHECK(tokens_of("uniform", 0.5, {{"sinks", count_of(2)}, {"weights", word_of("none")}}) == 10);
  CHECK(tokens_of("uniform", 0.5, {{"sinks", count_of(2)}}) == 2 + (160 - 32) / 20);
  CHECK(tokens_of("uniform", 1.0, {{"sinks", count_of(2)}}) == 100);  // the prompt is kept whole
}

TEST_CASE("of a sliding layer the exact cache is its window") {
  CHECK(tokens_of("window", 0.5, {}, 20) == 10);
  CHECK(tokens_of("h2o", 0.5, {}, 20) == 160 / 24 - 1);
  const auto [tokens, why] = solved("snapkv", 0.5, {}, shape_of(100, 20), 60);
  CHECK(tokens == 0);
  CHECK(why.find("sliding window of 20") != std::string::npos);
}

TEST_CASE("a memory below what a method always holds is not reached") {
  const auto [tokens, why] = solved("snapkv", 0.4, {}, shape_of(100), 60);
  CHECK(tokens == 0);
  // A token besides the window of 32, and forty decoded ones: a budget of less does not run.
  CHECK(why.find("at least 0.73 of") != std::string::npos);
  CHECK(tokens_of("snapkv", 0.73) == 33);
  CHECK(tokens_of("snapkv", 0.41) == 1);
  CHECK(tokens_of("window", 0.0099) == 0);
}

TEST_CASE("the least that is told of is reached by a budget that runs, of every method") {
  int solved = 0;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    for (const Parameter& parameter : algorithm.parameters) {
      if (!parameter.takes_memory || parameter.name != "budget") continue;
      CAPTURE(algorithm.id);
      const auto solve = [&](double fraction) {
        return solve_memory(algorithm, with_fraction(algorithm.id, fraction), shape_of(400), 240,
                            2);
      };
      const auto refused = solve(1e-9);
      const auto* why = std::get_if<std::string>(&refused);
      REQUIRE(why != nullptr);
      const std::string before = "keeps at least ";
      const std::size_t at = why->find(before);
      if (at == std::string::npos) continue;  // runs with no budget
      const double least = std::stod(why->substr(at + before.size()));
      if (least > 1.0) continue;
      ++solved;
      const auto reached = solve(least);
      REQUIRE(std::holds_alternative<Params>(reached));
      CHECK_FALSE(reason_to_skip(algorithm, std::get<Params>(reached), shape_of(400), 240));
      const auto below = solve(least * 0.998);
      if (const auto* solved = std::get_if<Params>(&below)) {
        CHECK(reason_to_skip(algorithm, *solved, shape_of(400), 240));
      }
    }
  }
  CHECK(solved > 10);
}

TEST_CASE("what was asked for identifies the parameters, also once it is solved") {
  const Params asked = with_fraction("window", 0.35);
  CHECK(asks_for_memory(asked));
  CHECK(to_string(asked.at("budget")) == "{\"memory\": 0.35}");
  const auto result = solve_memory(algorithm_named("window"), asked, shape_of(100), 60, 2);
  CHECK(to_string(std::get<Params>(result).at("budget")) == "{\"memory\": 0.35}");
  CHECK_THROWS_AS(static_cast<void>(TokenCount::memory({0.35}).of(60)), std::logic_error);
  CHECK(TokenCount::memory({0.35, 7}).of(60) == 7);
}

TEST_CASE("only parameters that memory follows from take it") {
  const auto takes = [](const std::string& id) {
    for (const Parameter& parameter : algorithm_named(id).parameters) {
      if (parameter.takes_memory) return parameter.name;
    }
    return std::string();
  };
  for (const char* id : {"window", "streaming_llm", "key_attention", "h2o", "keyformer", "snapkv",
                         "uniform", "kcenter"}) {
    CHECK(takes(id) == "budget");
  }
  CHECK(takes("balancekv_prefill") == "T");
  for (const char* id : {"dilated_window", "oracle_topk", "pyramidkv", "subgen", "balancekv",
                         "softmax_balance", "exact"}) {
    CHECK(takes(id).empty());
  }
  const auto refused = [](const std::string& id, const Given& more) {
    const auto why = algorithm_named(id).validate(with_fraction(id, 0.5, more));
    return why && why->first == "budget";
  };
  CHECK(refused("h2o", {{"semantics", word_of("released")}}));
  CHECK(refused("uniform", {{"replacement", Value{true}}}));
  CHECK(refused("keyformer", {{"scope", word_of("model")}}));
  CHECK_FALSE(refused("h2o", {}));
  CHECK_FALSE(refused("uniform", {}));
  CHECK_FALSE(refused("keyformer", {}));
}

}  // namespace memory_budget_test
}  // namespace kvbench::test
