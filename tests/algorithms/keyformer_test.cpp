// keyformer: scores with noise, temperature and damping; the facts that tie it to h2o and window;
// the published code's frozen keys.
#include <doctest/doctest.h>

#include <functional>

#include "numerics/counter_rng.hpp"
#include "support/given.hpp"
#include "support/naive_keyformer.hpp"
#include "support/owned_stream.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace keyformer_test {

Given plain(Index budget, double recent_fraction) {
  return {{"budget", count_of(budget)},
          {"recent_fraction", number(recent_fraction)},
          {"noise", word_of("none")}};
}

Given operator+(Given given, const Given& more) {
  given.insert(given.end(), more.begin(), more.end());
  return given;
}

// The draws of a seed on a stream, by their address.
std::function<Real(int, Index, Index)> draws(const Stream& stream, const std::string& noise,
                                             bool per_row, std::uint32_t seed) {
  if (noise == "none") return nullptr;
  const LogitNoise::Kind kind = noise == "gumbel"     ? LogitNoise::Kind::kGumbel
                                : noise == "gaussian" ? LogitNoise::Kind::kGaussian
                                                      : LogitNoise::Kind::kConstant;
  const CounterRng random(seed, stream.id.hash(), per_row ? "keyformer/row" : "keyformer/token");
  const LogitNoise drawn = {kind, per_row, random.key()};
  return [drawn](int g, Index row, Index token) { return Real{drawn.draw(g, row, token)}; };
}

TEST_CASE("keyformer, worked: temperature 2 and 3 in the first two decode rows") {
  // Prompt rows of weights 1, 1, 64 at tau 1: f0 = 1 + 1/2 + 1/66 = 1.515, f1 = 0.515, f2 = 0.970.
  // Budget 3, w = floor(3 * 0.34) = 1; three tokens are within the budget.
  // Row 3 (729), tau 2: roots 1 1 8 27, sum 37: f0 1.542, f1 0.542, f2 1.186; 1 goes.
  // Row 4 (64), tau 3: 1 4 9 4, sum 18: f0 1.598, f2 1.408, f3 = 27/37 + 9/18 = 1.230; 3 goes.
  const auto owned = weighted_tokens({1, 1, 64, 729, 64, 1});
  const Given given = plain(3, 0.34) + Given{{"gen_len", count_of(1)}};
  CHECK(kept_by("keyformer", owned->stream, 3, given) ==
        KeptSets{{0, 1, 2, 3}, {0, 2, 3, 4}, {0, 2, 4, 5}});
  // At temperature 1 throughout: row 3 of sum 795: f2 1.050, f3 0.917; row 4 of sum 858: f0 1.518,
  // f2 1.125, f3 1.767; 2 goes.
  CHECK(kept_by("keyformer", owned->stream, 3, given + Given{{"tau_end", number(1.0)}}) ==
        KeptSets{{0, 1, 2, 3}, {0, 2, 3, 4}, {0, 3, 4, 5}});
}

TEST_CASE("keyformer, worked: old scores fade under damping_form old") {
  // alpha 1/2, tau 1. Prompt: row 0: f0 1; row 1: f0 1/2 + 1/2 = 1, f1 1/2; row 2: f0 1/2 + 1/66,
  // f1 1/4 + 1/66, f2 64/66.
  // Row 3 of sum 795: f0 0.259, f1 0.134, f2 0.565; 1 goes. Row 4 of sum 858: f0 0.131, f2 0.357,
  // f3 = 0.459 + 0.850; 0 goes.
  const auto owned = weighted_tokens({1, 1, 64, 729, 64, 1});
  const Given given =
      plain(3, 0.34) +
      Given{{"tau_end", number(1.0)}, {"damping", number(0.5)}, {"damping_form", word_of("old")}};
  CHECK(kept_by("keyformer", owned->stream, 3, given) ==
        KeptSets{{0, 1, 2, 3}, {0, 2, 3, 4}, {2, 3, 4, 5}});
}

TEST_CASE("keyformer agrees with the token-by-token rule for every noise, draw and damping") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .query_size = 2},
      {.tokens = 40, .d = 4, .dv = 2, .window = 13},
      {.tokens = 40, .d = 3, .dv = 2, .softcap = 1.5, .query_size = 5},
      {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 17}};
  struct Option {
    std::string noise;
    bool per_row;
    double damping;
    bool old_form;
    double tau_init;
    double tau_end;
    Index gen_len;
  };
  const std::vector<Option> options = {
      {"gumbel", false, 1.0, false, 1.0, 2.0, 0},    {"gumbel", true, 1.0, false, 1.0, 2.0, 0},
      {"gaussian", false, 1.0, false, 1.0, 2.0, 5},  {"gaussian", true, 1.0, false, 0.5, 0.5, 0},
      {"constant", false, 1.0, false, 3.0, 1.0, 40}, {"none", false, 1.0, false, 1.0, 4.0, 2},
      {"none", false, 0.9, true, 1.0, 2.0, 0},       {"none", false, 0.5, false, 1.0, 2.0, 0},
      {"gumbel", true, 0.7, true, 2.0, 1.0, 60},     {"none", false, 0.0, true, 1.0, 1.0, 0},
      {"gumbel", false, 1.3, true, 1.0, 1.0, 0}};
  std::uint32_t seed = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Option& option : options) {
      for (const Index prompt : {0, 1, 17, 38}) {
        for (const auto& [budget, fraction] : std::vector<std::pair<Index, double>>{
                 {1, 0.3}, {7, 0.3}, {8, 0.0}, {12, 0.9}, {4, 1.0}}) {
          for (const char* group : {"mean", "max", "sum"}) {
            if (spec.heads_per_kv == 1 && std::string(group) != "mean") continue;
            CAPTURE(option.noise);
            CAPTURE(option.per_row);
            CAPTURE(option.damping);
            CAPTURE(prompt);
            CAPTURE(budget);
            CAPTURE(fraction);
            ++seed;
            NaiveKeyformer rule;
            rule.budget = budget;
            rule.recent_fraction = fraction;
            rule.group = group;
            rule.tau_init = option.tau_init;
            rule.tau_end = option.tau_end;
            rule.gen_len = option.gen_len > 0 ? option.gen_len : spec.tokens - prompt;
            rule.zeta = draws(owned->stream, option.noise, option.per_row, seed);
            rule.damping = option.damping;
            rule.damping_old = option.old_form;
            const Given given = {
                {"budget", count_of(budget)},
                {"recent_fraction", number(fraction)},
                {"group", word_of(group)},
                {"tau_init", number(option.tau_init)},
                {"tau_end", number(option.tau_end)},
                {"gen_len", option.gen_len > 0 ? count_of(option.gen_len) : word_of("auto")},
                {"noise", word_of(option.noise)},
                {"draw", word_of(option.per_row ? "row" : "token")},
                {"damping", number(option.damping)},
                {"damping_form", word_of(option.old_form ? "old" : "new")}};
            CHECK(kept_by("keyformer", owned->stream, prompt, given, seed) ==
                  naive_keyformer(owned->stream, prompt, rule));
          }
        }
      }
    }
  }
}

TEST_CASE("gen_len auto is n - P, and derived says so") {
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 2, .query_size = 4});
  for (const Index prompt : {0, 20, 59}) {
    const Given given = plain(9, 0.3) + Given{{"tau_end", number(6.0)}};
    CHECK(kept_by("keyformer", owned->stream, prompt, given) ==
          kept_by("keyformer", owned->stream, prompt,
                  given + Given{{"gen_len", count_of(60 - prompt)}}));
    const AlgorithmDescription& keyformer = algorithm_named("keyformer");
    for (const char* semantics : {"paper", "released"}) {
      const Params params = params_for(keyformer, given + Given{{"semantics", word_of(semantics)}});
      Stepper stepper(owned->stream, prompt, keyformer, params);
      CHECK(derived_real(stepper.algorithm().derived(), "gen_len") ==
            static_cast<double>(60 - prompt));
      CHECK(derived_real(stepper.algorithm().derived(), "budget") == 9.0);
      CHECK(derived_real(stepper.algorithm().derived(), "recent") == 2.0);
    }
  }
}

TEST_CASE("released keyformer, worked: frozen keys, and token P - w in neither set") {
  // Prompt weights 1, 64, 1, 1, 1 at tau 1: f1 is largest, then f0 (it alone is seen by row 0).
  // Budget 4, w = 2: keys {0, 1}, recent {3, 4}; at row 5 the recent ones are 4 and 5: token 3 is
  // gone. 4096 at row 5 is the largest of all and still leaves with the window.
  const auto owned = weighted_tokens({1, 64, 1, 1, 1, 4096, 1, 1});
  CHECK(kept_by("keyformer", owned->stream, 5,
                plain(4, 0.5) + Given{{"semantics", word_of("released")}}) ==
        KeptSets{{0, 1, 4, 5}, {0, 1, 5, 6}, {0, 1, 6, 7}});
}

TEST_CASE("released keyformer attends to what its masks, simulated over all tokens, leave open") {
  const std::vector<StreamSpec> specs = {{.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2},
                                         {.tokens = 50, .d = 4, .dv = 2, .query_size = 3},
                                         {.tokens = 50, .d = 4, .dv = 2, .window = 15}};
  std::uint32_t seed = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 5, 20, 45}) {
      for (const auto& [budget, fraction] : std::vector<std::pair<Index, double>>{
               {2, 0.5}, {6, 0.5}, {12, 0.3}, {12, 1.0}, {20, 0.3}, {48, 0.2}}) {
        for (const char* noise : {"none", "gumbel"}) {
          CAPTURE(spec.window);
          CAPTURE(prompt);
          CAPTURE(budget);
          CAPTURE(noise);
          NaiveKeyformer rule;
          rule.budget = budget;
          rule.recent_fraction = fraction;
          rule.gen_len = spec.tokens - prompt;
          rule.zeta = draws(owned->stream, noise, false, ++seed);
          CHECK(kept_by("keyformer", owned->stream, prompt,
                        {{"budget", count_of(budget)},
                         {"recent_fraction", number(fraction)},
                         {"noise", word_of(noise)},
                         {"semantics", word_of("released")}},
                        seed) == naive_released_keyformer(owned->stream, prompt, rule));
        }
      }
    }
  }
}

TEST_CASE("keyformer is skipped if it cannot run") {
  auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2});
  StreamShape shape = owned->stream.shape;
  CHECK(skip_of("keyformer", shape, 20, {{"budget", count_of(4)}}).empty());
  CHECK(!skip_of("keyformer", shape, 10, {{"budget", number(0.05)}}).empty());
  for (const char* id : {"keyformer", "h2o"}) {
    CHECK(!skip_of(id, shape, 20,
                   {{"budget", count_of(3)},
                    {"recent_fraction", number(0.3)},
                    {"semantics", word_of("released")}})
               .empty());
  }
  shape.first_query = 1;
  CHECK(!skip_of("keyformer", shape, 20, {{"budget", count_of(4)}}).empty());
}

TEST_CASE(
    "a temperature that falls to 0 within the decode rows is refused, one that stays above is "
    "not") {
  const StreamShape shape = make_stream({.tokens = 30, .d = 4, .dv = 2})->stream.shape;
  // tau = 2 - m / 5 at the m-th of ten decode rows: 0 at m = 10.
  const Given falling = {
      {"budget", count_of(4)}, {"tau_init", number(2.0)}, {"tau_end", number(1.0)}};
  CHECK(!skip_of("keyformer", shape, 20, falling + Given{{"gen_len", count_of(5)}}).empty());
  CHECK(skip_of("keyformer", shape, 20, falling + Given{{"gen_len", count_of(6)}}).empty());
  CHECK(skip_of("keyformer", shape, 20, falling).empty());
}

}  // namespace keyformer_test
}  // namespace kvbench::test
