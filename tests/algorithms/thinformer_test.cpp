// thinformer: points, rounds and picks against a naive halving, and what the method promises of
// counts, pairs, coins and weights.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "numerics/counter_rng.hpp"
#include "support/kept_of_prompt.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace thinformer_test {

struct Rule {
  Index g = 1;
  double delta = 0.5;
  std::string tail = "drop";
  std::string weights = "middle";
  bool symmetrize = true;
  Index sinks = 0;
  Index recent = 0;

  Given given() const {
    return {{"g", count_of(g)},
            {"delta", number(delta)},
            {"tail", word_of(tail)},
            {"weights", word_of(weights)},
            {"symmetrize", Value{symmetrize}},
            {"sinks", count_of(sinks)},
            {"recent", count_of(recent)}};
  }
};

// All halvings of the middle [first, last), from its points on; `seed` of the draws.
std::vector<std::vector<Index>> naive_rounds(const Stream& stream, Index first, Index last,
                                             const Rule& rule, std::uint32_t seed) {
  const Index middle = last - first;
  Index n0 = 1;
  Index log4 = 0;
  while (4 * n0 <= middle) {
    n0 *= 4;
    ++log4;
  }
  std::vector<Index> points;
  for (Index j = 0; j < n0; ++j) {
    points.push_back(first + (rule.tail == "drop" ? middle / n0 * j : j * middle / n0));
  }
  std::vector<std::vector<Index>> out{points};
  const auto least = static_cast<Index>(std::llround(std::pow(4.0, rule.g + 1)));
  if (n0 < least) return out;

  Real radius = 0;
  Real bound = 0;
  for (const Index j : points) {
    Real sum = 0;
    for (Index k = 0; k < stream.shape.d; ++k) {
      sum += static_cast<Real>(stream.keys(j, k)) * stream.keys(j, k);
    }
    radius = std::max(radius, sum);
    for (Index c = 0; c < stream.shape.dv; ++c) {
      bound = std::max<Real>(bound, std::fabs(stream.values(j, c)));
    }
  }
  const auto kernel = [&](Index a, Index b) {
    Real keys = 0;
    Real values = 0;
    for (Index k = 0; k < stream.shape.d; ++k) {
      keys += static_cast<Real>(stream.keys(a, k)) * stream.keys(b, k);
    }
    for (Index c = 0; c < stream.shape.dv; ++c) {
      values += static_cast<Real>(stream.values(a, c)) * stream.values(b, c);
    }
    return std::exp(stream.shape.scale * (keys - radius)) * (values + bound * bound);
  };
  StreamId layer = stream.id;
  layer.kv_head = 0;
  const CounterRng swaps(seed, stream.id.hash(), "thinformer/swap");
  const CounterRng coins(seed, layer.hash(), "thinformer/coin");
  const Index rounds = log4 - rule.g;
  const Real hp = rule.delta / static_cast<Real>(least * rounds * n0);
  Index size = least;
  for (Index round = 0; round < rounds; ++round) {
    const std::vector<Index>& now = out.back();
    const auto r = static_cast<std::uint32_t>(round);
    const bool partners = rule.symmetrize && coins.uniform(0, 0, r) < 0.5;
    std::vector<Index> next;
    for (Index bucket = 0; bucket < std::ssize(now) / size; ++bucket) {
      const auto x = [&](Index i) { return now[bucket * size + i]; };
      const auto difference = [&](Index i, Index j) {
        return kernel(x(2 * i), x(2 * j)) - kernel(x(2 * i), x(2 * j + 1)) -
               kernel(x(2 * i + 1), x(2 * j)) + kernel(x(2 * i + 1), x(2 * j + 1));
      };
      const Real length = 0.5L + std::log(2.0L * size / (hp * size * size));
      std::vector<int> sign;  // signs of pairs so far: +1 the first stays
      Real largest = 0;
      for (Index i = 0; i < size / 2; ++i) {
        Real alpha = 0;
        for (Index j = 0; j < i; ++j) alpha += sign[j] * difference(j, i);
        const Real root = std::sqrt(std::max<Real>(0, difference(i, i)));
        largest = std::max(largest, root);
        const Real u =
            2 * static_cast<Real>(swaps.uniform53(static_cast<std::uint32_t>(i),
                                                  static_cast<std::uint32_t>(bucket), r)) -
            1;
        const bool swap = i > 0 && u * length * root * largest <= alpha;
        sign.push_back(swap ? -1 : 1);
        next.push_back(x(2 * i + (swap != partners ? 1 : 0)));
      }
    }
    out.push_back(next);
    size *= 2;
  }
  return out;
}

std::vector<Index> sorted(std::vector<Index> tokens) {
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<Index> kept(const Stream& stream, Index prompt, const Rule& rule,
                        std::uint32_t seed = 0) {
  return kept_of_prompt("thinformer", stream, prompt, rule.given(), seed);
}

TEST_CASE("thinformer keeps what the naive halving keeps, for every g, tail and stream") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 281, .d = 5, .dv = 3},
      {.tokens = 281, .d = 16, .dv = 2},
      {.tokens = 281, .d = 4, .dv = 2, .window = 100},
      {.tokens = 281, .d = 4, .dv = 2, .kind = StreamKind::kClustered}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Index lo = owned->stream.shape.first_visible(280);
    for (const Index g : {0, 1, 2, 3, 4}) {
      for (const char* tail : {"drop", "spread"}) {
        for (const bool symmetrize : {false, true}) {
          for (std::uint32_t seed = 0; seed < 4; ++seed) {
            CAPTURE(spec.window);
            CAPTURE(g);
            CAPTURE(std::string(tail));
            CAPTURE(symmetrize);
            CAPTURE(seed);
            const Rule rule{.g = g, .delta = 0.3, .tail = tail, .symmetrize = symmetrize};
            CHECK(kept(owned->stream, 280, rule, seed) ==
                  sorted(naive_rounds(owned->stream, lo, 280, rule, seed).back()));
          }
        }
      }
    }
  }
}

TEST_CASE("thinformer, worked: one pair of each, by hand") {
  // Four points, g 0: one round, one bucket of two pairs. Keys 0: the kernel is v_a v_b + B^2,
  // and D of pairs (a, b), (c, d) is (v_a - v_b)(v_c - v_d). Token 0 stays; the second pair has
  // D_11 = (v_2 - v_3)^2 and alpha = (v_0 - v_1)(v_2 - v_3). hp = 0.5 / 16: L = 0.5 + ln(16)
  // = 3.27. Values 9 0 0 9: alpha = -81 and |U| reaches 3.27 * 9 * 9: swapped with probability (1 -
  // 1 / 3.27) / 2 = 0.347. Values 0 0 0 9: alpha = 0, one half.
  const Rows zeros(5, {0.0});
  const auto counts = [&](const Rows& values) {
    const auto owned = stream_of(zeros, values, {zeros});
    int swapped = 0;
    for (std::uint32_t seed = 0; seed < 2000; ++seed) {
      const std::vector<Index> set = kept(owned->stream, 4, {.g = 0, .symmetrize = false}, seed);
      REQUIRE(set.size() == 2);
      CHECK(set[0] == 0);
      swapped += set[1] == 3 ? 1 : 0;
    }
    return swapped;
  };
  // Seven standard deviations of 21.3 and 22.4.
  CHECK(std::abs(counts({{9}, {0}, {0}, {9}, {0}}) - 694) < 150);
  CHECK(std::abs(counts({{0}, {0}, {0}, {9}, {0}}) - 1000) < 157);
}

TEST_CASE("KV heads of a layer share their coins; layers and sequences do not") {
  const auto owned = make_stream({.tokens = 281, .d = 5, .dv = 3});
  // Whether the coin of a one-round thinning takes the partners.
  const auto coin = [&](std::uint32_t seed) {
    return kept(owned->stream, 280, {.g = 3}, seed) !=
           kept(owned->stream, 280, {.g = 3, .symmetrize = false}, seed);
  };
  const StreamId id = owned->stream.id;
  int layers = 0;
  int sequences = 0;
  int tossed = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const bool here = coin(seed);
    tossed += here ? 1 : 0;
    owned->stream.id.kv_head = 5;
    CHECK(coin(seed) == here);
    owned->stream.id = id;
    owned->stream.id.layer = 9;
    layers += coin(seed) != here ? 1 : 0;
    owned->stream.id = id;
    owned->stream.id.sequence += "x";
    sequences += coin(seed) != here ? 1 : 0;
    owned->stream.id = id;
  }
  // Each is a count of 60 fair coins; it is outside of 9 to 51 once in 10^8.
  for (const int count : {tossed, layers, sequences}) CHECK((count >= 9 && count <= 51));
}

TEST_CASE("thinformer keeps 2^g sqrt(n0) tokens, all n0 where 4^(g+1) exceeds n0") {
  const auto owned = make_stream({.tokens = 1025, .d = 2, .dv = 2});
  for (const Index middle : {256, 300, 1023}) {
    for (const Index g : {0, 1, 2, 3, 4, 5, 30}) {
      CAPTURE(middle);
      CAPTURE(g);
      const std::vector<Index> set = kept(owned->stream, middle, {.g = g});
      CHECK(std::ssize(set) == (g >= 4 ? 256 : Index{16} << g));
      // Strided points: what lies beyond them is never kept.
      const Index stride = middle / 256;
      for (const Index token : set) {
        CHECK(token % stride == 0);
        CHECK(token < 256 * stride);
      }
    }
  }
  CHECK(kept(owned->stream, 1024, {.g = 2}).size() == 128);
  const std::vector<Index> spread = kept(owned->stream, 300, {.g = 4, .tail = "spread"});
  CHECK(spread.size() == 256);
  CHECK(spread.back() == 255 * 300 / 256);
  CHECK(kept(owned->stream, 3, {.g = 0}) == std::vector<Index>{0});
}

TEST_CASE("of two equal tokens of a pair the later one stays") {
  const auto owned = make_stream({.tokens = 65, .d = 4, .dv = 3});
  for (Index j = 0; j < 64; j += 2) {
    for (Index k = 0; k < 4; ++k) owned->keys[(j + 1) * 4 + k] = owned->keys[j * 4 + k];
    for (Index k = 0; k < 3; ++k) owned->values[(j + 1) * 3 + k] = owned->values[j * 3 + k];
  }
  // One round: bucket of 64, of whose first pair the first token stays.
  std::vector<Index> expected{0};
  for (Index j = 3; j < 64; j += 2) expected.push_back(j);
  CHECK(kept(owned->stream, 64, {.g = 2, .symmetrize = false}) == expected);
}

}  // namespace thinformer_test
}  // namespace kvbench::test
