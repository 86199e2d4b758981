// uniform: what is kept and with which weights; its laws are in tests/statistical.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace uniform_test {

Sketch first_row(const Stream& stream, Index prompt, const Given& given, std::uint32_t seed) {
  const AlgorithmDescription& algorithm = algorithm_named("uniform");
  return sketches(stream, prompt, algorithm, params_for(algorithm, given), seed).front();
}

struct Middle {
  std::vector<Index> tokens;
  double weight_sum = 0.0;
};

// Rows of tokens [first, last), all of one weight in both sums unless `repeats`.
Middle middle_of(const Sketch& sketch, Index first, Index last) {
  Middle out;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token < first || row.token >= last) {
      CHECK(row.w_num == 1.0);
      CHECK(row.w_den == 1.0);
      continue;
    }
    CHECK(row.w_num == row.w_den);
    out.tokens.push_back(row.token);
    out.weight_sum += row.w_den;
  }
  return out;
}

TEST_CASE("T halvings keep floor(M / 2^T) tokens of the middle that weigh M / h each") {
  const auto owned = make_stream({.tokens = 70, .d = 2, .dv = 2});
  for (const Index T : {0, 1, 2, 3, 5, 6}) {
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      CAPTURE(T);
      // Middle [7, 56): 49 tokens.
      const Sketch sketch =
          first_row(owned->stream, 60,
                    {{"T", count_of(T)}, {"sinks", count_of(7)}, {"recent", count_of(4)}}, seed);
      const Middle middle = middle_of(sketch, 7, 56);
      const Index h = 49 >> T;
      CHECK(std::ssize(middle.tokens) == h);
      CHECK(std::set<Index>(middle.tokens.begin(), middle.tokens.end()).size() ==
            middle.tokens.size());
      CHECK(middle.weight_sum == doctest::Approx(h == 0 ? 0.0 : 49.0).epsilon(1e-14));
      // Sinks, recent and the decode token are all there.
      CHECK(sketch.size() == 7 + 4 + 1 + h);
    }
  }
}

TEST_CASE("uniform, worked: two of five tokens between a sink and a recent token") {
  // Prompt of seven, sinks 1, recent 1: M = 5, h = floor(5 / 2) = 2, each weighs 5/2. The logits
  // are 0 and the values 1, 2, 4, .. 64, 128: z = (1 + 64 + 128 + 5/2 (2^i + 2^j)) / 8.
  const Rows zeros(8, {0.0});
  const auto owned = stream_of(zeros, {{1}, {2}, {4}, {8}, {16}, {32}, {64}, {128}}, {zeros});
  std::set<std::vector<Index>> seen;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const Sketch sketch =
        first_row(owned->stream, 7,
                  {{"T", count_of(1)}, {"sinks", count_of(1)}, {"recent", count_of(1)}}, seed);
    const Middle middle = middle_of(sketch, 1, 6);
    REQUIRE(middle.tokens.size() == 2);
    CHECK(middle.weight_sum == 5.0);
    const double values = std::ldexp(1.0, static_cast<int>(middle.tokens[0])) +
                          std::ldexp(1.0, static_cast<int>(middle.tokens[1]));
    CHECK(library_answer(owned->stream, 0, 7, sketch).answer[0] ==
          doctest::Approx((193.0 + 2.5 * values) / 8.0).epsilon(1e-14));
    seen.insert(kept_tokens(sketch));
  }
  CHECK(seen.size() == 10);  // every pair of five; one of them is missed once in 10^8
}

TEST_CASE("with replacement, repeats stand in the weight and rows are distinct tokens") {
  const auto owned = make_stream({.tokens = 40, .d = 2, .dv = 2});
  bool repeated = false;
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Sketch sketch =
        first_row(owned->stream, 35,
                  {{"T", count_of(1)}, {"sinks", count_of(5)}, {"replacement", Value{true}}}, seed);
    const Middle middle = middle_of(sketch, 5, 35);
    CHECK(middle.weight_sum == doctest::Approx(30.0).epsilon(1e-14));
    CHECK(std::set<Index>(middle.tokens.begin(), middle.tokens.end()).size() ==
          middle.tokens.size());
    CHECK(middle.tokens.size() <= 15);
    repeated = repeated || middle.tokens.size() < 15;
    for (const SketchRow& row : sketch.rows()) {
      // 15 draws of 30 tokens: multiples of 2.
      if (row.token >= 5 && row.token < 35) CHECK(std::fmod(row.w_num, 2.0) == 0.0);
    }
  }
  CHECK(repeated);
}

TEST_CASE("halving by signs keeps floor(n/2) per round, weight 2^T") {
  const auto owned = make_stream({.tokens = 610, .d = 2, .dv = 2});
  for (const Index T : {0, 1, 2, 4}) {
    const Given given = {
        {"T", count_of(T)}, {"sinks", count_of(0)}, {"form", word_of("recursive_signs")}};
    const Sketch sketch = first_row(owned->stream, 601, given, 3);
    const Middle middle = middle_of(sketch, 0, 601);
    Index expected = 601;
    for (Index round = 0; round < T; ++round) expected /= 2;
    CHECK(std::ssize(middle.tokens) == expected);
    CHECK(middle.weight_sum == static_cast<double>(expected << T));
  }
}

TEST_CASE("weights none gives 1, and stores no weight") {
  const auto owned = make_stream({.tokens = 40, .d = 2, .dv = 2});
  const Sketch sketch =
      first_row(owned->stream, 35,
                {{"T", count_of(1)}, {"sinks", count_of(5)}, {"weights", word_of("none")}}, 2);
  for (const SketchRow& row : sketch.rows()) CHECK(row.w_num == 1.0);
  CHECK(sketch.kept_counts().bookkeeping == 0);
  const Sketch weighted =
      first_row(owned->stream, 35, {{"T", count_of(1)}, {"sinks", count_of(5)}}, 2);
  CHECK(weighted.kept_counts().bookkeeping == 15);
}

}  // namespace uniform_test
}  // namespace kvbench::test
