// balancekv_prefill: the rule of halving by hand and over all sign patterns, blocks, pads, weights,
// and every token against the token-by-token rule.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_balancekv.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace balancekv_prefill_test {

Given operator+(Given given, const Given& more) {
  given.insert(given.end(), more.begin(), more.end());
  return given;
}

struct Kept {
  Index token;
  double w_num;
  double w_den;
  bool operator==(const Kept&) const = default;
};

struct Run {
  std::vector<Kept> kept;  // tokens of the middle
  std::vector<Index> exact;
  Derived derived;
  Counters counters;
};

Run run(const Stream& stream, Index prompt, Index sinks, Index recent, const Given& given,
        std::uint32_t seed = 0) {
  const AlgorithmDescription& algorithm = algorithm_named("balancekv_prefill");
  const Params params = params_for(
      algorithm, given + Given{{"sinks", count_of(sinks)}, {"recent", count_of(recent)}});
  Stepper stepper(stream, prompt, algorithm, params, seed);
  REQUIRE(stepper.next());
  Run out;
  for (const SketchRow& row : stepper.sketch().rows()) {
    CHECK(row.keeps_key);
    CHECK(row.keeps_value);
    if (row.token < sinks || row.token >= prompt - recent) {
      CHECK(row.w_num == 1.0);
      CHECK(row.w_den == 1.0);
      out.exact.push_back(row.token);
    } else {
      out.kept.push_back({row.token, row.w_num, row.w_den});
    }
  }
  out.derived = stepper.algorithm().derived();
  out.counters = stepper.algorithm().counters();
  return out;
}

// A prompt whose walk has these signs, whatever the coins: token 0 has value (1000, 0), token j the
// value -s_j / 1000 along it, so that K_0j = -s_j outweighs all other products (1e-6 at most), and
// gamma 4 pushes p beyond [0, 1]. Temperature 0 and offset 0 leave the values alone.
std::unique_ptr<OwnedStream> stream_of_signs(const std::vector<int>& signs) {
  Rows keys;
  Rows values;
  for (std::size_t j = 0; j < signs.size(); ++j) {
    keys.push_back({0.0});
    values.push_back({j == 0 ? 1000.0 : -signs[j] / 1000.0});
  }
  keys.push_back({0.0});  // the decode row
  values.push_back({0.0});
  return stream_of(keys, values, {keys});
}

const Given kForced = {
    {"T", count_of(1)}, {"temperature", number(0.0)}, {"value_offset", number(0.0)}};

std::vector<Kept> halved(const std::vector<int>& signs) {
  const auto owned = stream_of_signs(signs);
  const Run result = run(owned->stream, std::ssize(signs), 0, 0, kForced);
  // Every step but the first leaves [0, 1].
  CHECK(result.counters.clamped == std::ssize(signs) - 1);
  return result.kept;
}

using List = std::vector<Kept>;

TEST_CASE("the halving rule, worked on eight signs") {
  // Four + at place 6, four - at place 7: c = 7, - goes, all + count double, nothing comes after.
  CHECK(halved({1, -1, 1, 1, -1, -1, 1, -1}) == List{{0, 2, 2}, {2, 2, 2}, {3, 2, 2}, {6, 2, 2}});
  // Four + at place 5, - never: c = 5, + goes up to there; of 0..5 the - are 1 and 2; 6 and 7 stay
  // single.
  CHECK(halved({1, -1, -1, 1, 1, 1, 1, 1}) == List{{1, 2, 2}, {2, 2, 2}, {6, 1, 2}, {7, 1, 2}});
  // All +: c = 3; nothing of 0..3, all of 4..7.
  CHECK(halved({1, 1, 1, 1, 1, 1, 1, 1}) == List{{4, 1, 2}, {5, 1, 2}, {6, 1, 2}, {7, 1, 2}});
  // Four - at place 4, + never four: token 0 doubles.
  CHECK(halved({1, -1, -1, -1, -1, 1, -1, 1}) == List{{0, 2, 2}, {5, 1, 2}, {6, 1, 2}, {7, 1, 2}});
}

TEST_CASE("the halving rule, worked on an odd number: ceil(n/2) are candidates, floor(n/2) stay") {
  // n = 7, h = 3. + reaches 3 at place 4, - at 5: c = 5, - goes; 0, 2, 4 double; 6 is the fourth
  // and goes for its weight of 1.
  CHECK(halved({1, -1, 1, -1, 1, -1, 1}) == List{{0, 2, 2}, {2, 2, 2}, {4, 2, 2}});
  // + at place 2, - at 6: c = 6: the four + double, and the last of them goes.
  CHECK(halved({1, 1, 1, -1, -1, 1, -1}) == List{{0, 2, 2}, {1, 2, 2}, {2, 2, 2}});
  // + at place 3, - never: c = 3: 1 doubles, 4 5 6 single, the last goes.
  CHECK(halved({1, -1, 1, 1, 1, 1, 1}) == List{{1, 2, 2}, {4, 1, 2}, {5, 1, 2}});
  // Three tokens: h = 1. + at 0, - at 1: c = 1: 0 doubles, 2 goes.
  CHECK(halved({1, -1, 1}) == List{{0, 2, 2}});
  // - never: c = 0: + goes at 0; of 1 and 2 the first stays.
  CHECK(halved({1, 1, 1}) == List{{1, 1, 2}});
  CHECK(halved({1, -1}) == List{{0, 2, 2}});
  CHECK(halved({1, 1}) == List{{1, 1, 2}});
  CHECK(halved({1}) == List{});
}

TEST_CASE("every pattern of up to ten signs halves as the rule says, and keeps floor(n/2)") {
  for (std::size_t n = 1; n <= 10; ++n) {
    for (unsigned pattern = 0; pattern < (1U << (n - 1)); ++pattern) {
      std::vector<int> signs = {1};
      for (std::size_t j = 1; j < n; ++j) signs.push_back((pattern >> (j - 1)) & 1U ? 1 : -1);
      std::vector<Kept> expected;
      for (const KeptPlace& kept : naive_prefill_half(signs)) {
        expected.push_back({kept.place, static_cast<double>(kept.factor), 2.0});
      }
      CHECK(expected.size() == n / 2);
      CHECK(halved(signs) == expected);
    }
  }
}

TEST_CASE("balancekv_prefill keeps what the token-by-token rule keeps") {
  struct Option {
    Index T;
    Index block;
    double gamma;
    double temperature;
    double value_offset;
    bool center;
  };
  const std::vector<Option> options = {
      {1, 256, 4.0, 0.1, 0.025, true},  {2, 16, 4.0, 0.1, 0.025, true},
      {4, 32, 4.0, 1.0, 0.025, true},   {3, 7, 0.05, 0.1, 0.025, true},
      {2, 64, 0.01, 0.1, 1.0, false},   {2, 1, 4.0, 0.1, 0.025, true},
      {3, 50, 0.0, 0.1, 0.025, true},   {2, 20, 0.23, 0.0, -0.5, false},
      {2, 16, 4.0, 30.0, 0.025, false}, {9, 16, 0.1, 0.1, 0.025, true}};
  const std::vector<StreamSpec> specs = {
      {.tokens = 130, .d = 6, .dv = 4},
      {.tokens = 131, .d = 16, .dv = 3, .kind = StreamKind::kClustered},
      {.tokens = 130, .d = 4, .dv = 2, .softcap = 2.0, .kind = StreamKind::kSomeZeroValues},
      {.tokens = 130, .d = 4, .dv = 2, .window = 90}};
  std::uint32_t seed = 0;
  Index unclamped = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Option& option : options) {
      for (const auto& [sinks, recent] : std::vector<std::pair<Index, Index>>{{0, 0}, {5, 8}}) {
        CAPTURE(spec.window);
        CAPTURE(option.T);
        CAPTURE(option.block);
        CAPTURE(option.gamma);
        CAPTURE(option.temperature);
        NaivePrefill rule;
        rule.T = option.T;
        rule.block = option.block;
        rule.gamma = option.gamma;
        rule.temperature = option.temperature;
        rule.value_offset = option.value_offset;
        rule.center = option.center;
        rule.seed = ++seed;
        const Index prompt = spec.tokens - 3;
        const Index first = std::max(sinks, owned->stream.shape.first_visible(prompt));
        const NaivePrefillResult expected =
            naive_prefill(owned->stream, first, prompt - recent, rule);
        for (const char* weights : {"released", "matched"}) {
          const Given given = {{"T", count_of(option.T)},
                               {"block", count_of(option.block)},
                               {"gamma", number(option.gamma)},
                               {"temperature", number(option.temperature)},
                               {"value_offset", number(option.value_offset)},
                               {"center", Value{option.center}},
                               {"weights", word_of(weights)}};
          const Run result = run(owned->stream, prompt, sinks, recent, given, seed);
          const double rate = std::pow(2.0, static_cast<double>(option.T));
          std::vector<Kept> kept;
          double numerator = 0.0;
          double denominator = 0.0;
          for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
            const auto weight = static_cast<double>(expected.weights[i]);
            kept.push_back(
                {expected.tokens[i], weight, std::string(weights) == "matched" ? weight : rate});
            numerator += kept.back().w_num;
            denominator += kept.back().w_den;
          }
          CHECK(result.kept == kept);
          CHECK(result.counters.clamped == expected.clamped);
          CHECK(derived_real(result.derived, "weight_sum_numerator") == numerator);
          CHECK(derived_real(result.derived, "weight_sum_denominator") == denominator);
          CHECK(derived_real(result.derived, "middle") ==
                static_cast<double>(prompt - recent - first));
          unclamped += expected.clamped == 0 ? 1 : 0;
        }
      }
    }
  }
  CHECK(unclamped > 0);
}

TEST_CASE("the mean that centres the last block includes its pads") {
  // Block 4, five tokens: the fifth is alone with three pads, its mean a quarter of its key; the
  // first four share theirs. A second round would see other blocks; one round shows it: the oracle
  // that divides by the number of real tokens decides differently somewhere.
  const auto owned = make_stream({.tokens = 120, .d = 4, .dv = 2});
  const Given given = {{"T", count_of(1)},
                       {"block", count_of(64)},
                       {"temperature", number(2.0)},
                       {"gamma", number(0.3)}};
  int different = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    NaivePrefill rule;
    rule.block = 64;
    rule.temperature = 2;
    rule.gamma = 0.3L;
    rule.seed = seed;
    const Run result = run(owned->stream, 110, 0, 0, given, seed);
    const auto tokens = [](const std::vector<Kept>& kept) {
      std::vector<Index> out;
      for (const Kept& one : kept) out.push_back(one.token);
      return out;
    };
    CHECK(tokens(result.kept) == naive_prefill(owned->stream, 0, 110, rule).tokens);
    // Without pads: a walk over the last 46 tokens as a block of their own.
    const NaivePrefillResult whole = naive_prefill(owned->stream, 64, 110, rule);
    NaivePrefill short_block = rule;
    short_block.block = 46;
    different += whole.tokens != naive_prefill(owned->stream, 64, 110, short_block).tokens ? 1 : 0;
  }
  CHECK(different > 0);
}

TEST_CASE("the first sign of a block draws nothing: blocks of one keep the later half") {
  const auto owned = make_stream({.tokens = 21, .d = 3, .dv = 2});
  const Run result = run(owned->stream, 20, 0, 0, {{"T", count_of(1)}, {"block", count_of(1)}});
  REQUIRE(result.kept.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(result.kept[i] == Kept{static_cast<Index>(10 + i), 1.0, 2.0});
  }
  CHECK(result.counters.clamped == 0);
}

}  // namespace balancekv_prefill_test
}  // namespace kvbench::test
