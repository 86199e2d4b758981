// lagkv: scores of partitions by the next one, once to a budget and while decoding.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/given.hpp"
#include "support/naive_ranking.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace lagkv_test {

Given kvpress(Index budget, Index lag, Index sinks, bool cross = false) {
  return {{"budget", count_of(budget)},
          {"lag", count_of(lag)},
          {"sinks", count_of(sinks)},
          {"cross", Value{cross}}};
}

Given released(double ratio, Index lag, Index sinks, double value_weight = 1) {
  return {{"semantics", word_of("released")},
          {"ratio", number(ratio)},
          {"lag", count_of(lag)},
          {"sinks", count_of(sinks)},
          {"value_weight", number(value_weight)}};
}

// Softmax over `part` of the deviations of numbers that the reference's ranges normalise.
std::vector<Real> naive_lag_scores(ConstMatrix rows, const std::vector<Index>& part,
                                   const std::vector<Index>& reference) {
  std::vector<Real> scores;
  Real sum = 0;
  for (const Index token : part) {
    std::vector<Real> z;
    for (Index c = 0; c < rows.cols; ++c) {
      Real lo = std::numeric_limits<Real>::infinity();
      Real hi = -lo;
      for (const Index other : reference) {
        lo = std::min(lo, static_cast<Real>(rows(other, c)));
        hi = std::max(hi, static_cast<Real>(rows(other, c)));
      }
      if (lo < hi) z.push_back((rows(token, c) - lo) / (hi - lo));
    }
    Real mean = 0;
    for (const Real each : z) mean += each / static_cast<Real>(z.size());
    Real variance = 0;
    for (const Real each : z) {
      variance += (each - mean) * (each - mean) / (static_cast<Real>(z.size()) - 1);
    }
    scores.push_back(std::exp(z.size() < 2 ? 0 : std::sqrt(variance)));
    sum += scores.back();
  }
  for (Real& score : scores) score /= sum;
  return scores;
}

std::vector<Index> range(Index first, Index last) {
  std::vector<Index> out;
  for (Index j = first; j < last; ++j) out.push_back(j);
  return out;
}

// Scores of visible prompt tokens, as kvpress has them.
std::vector<Real> naive_prompt_scores(const Stream& stream, const std::vector<Index>& tokens,
                                      Index lag, Index sinks, bool cross) {
  std::vector<Real> out;
  std::vector<Index> behind;
  for (const Index token : tokens) {
    if (token < sinks) {
      out.push_back(1);
    } else {
      behind.push_back(token);
    }
  }
  const Index count = std::ssize(behind);
  if (count < 2 * lag) {
    for (Index j = 0; j < count; ++j) out.push_back(static_cast<Real>(j) / count);
    return out;
  }
  for (Index p = 0; p < count / lag - 1; ++p) {
    const Index first = behind.front() + p * lag;
    const std::vector<Index> part = range(first, first + lag);
    const std::vector<Index> reference = range(first + lag, first + 2 * lag);
    std::vector<Real> scores = naive_lag_scores(stream.keys, part, reference);
    const std::vector<Real> v = naive_lag_scores(stream.values, part, reference);
    for (std::size_t j = 0; j < scores.size(); ++j) scores[j] = (scores[j] + v[j]) / 2;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      Index below = 0;
      for (std::size_t i = 0; i < scores.size(); ++i) {
        below += scores[i] < scores[j] || (scores[i] == scores[j] && i > j) ? 1 : 0;
      }
      out.push_back(cross ? scores[j] : static_cast<Real>(below) / lag);
    }
  }
  out.resize(tokens.size(), 1);
  return out;
}

KeptSets naive_kvpress(const Stream& stream, Index prompt, Index budget, Index lag, Index sinks,
                       bool cross) {
  return naive_once(stream, prompt, {budget, 0, 0}, [&](const std::vector<Index>& tokens) {
    return naive_prompt_scores(stream, tokens, lag, sinks, cross);
  });
}

KeptSets naive_released(const Stream& stream, Index prompt, double ratio, Index lag, Index sinks,
                        double value_weight) {
  std::vector<Index> held;
  std::vector<Index> settled = range(0, sinks);  // tokens that stay if they are held
  const auto compress = [&] {
    Index base = 0;
    for (const Index token : settled) {
      base += std::find(held.begin(), held.end(), token) != held.end() || token > held.back();
    }
    if (std::ssize(held) < base + 2 * lag) return;
    std::vector<Index> kept(held.begin(), held.begin() + base);
    for (; std::ssize(held) >= base + 2 * lag; base += lag) {
      const std::vector<Index> part(held.begin() + base, held.begin() + base + lag);
      const std::vector<Index> reference(held.begin() + base + lag, held.begin() + base + 2 * lag);
      std::vector<Real> scores = naive_lag_scores(stream.keys, part, reference);
      const std::vector<Real> v = naive_lag_scores(stream.values, part, reference);
      for (std::size_t j = 0; j < scores.size(); ++j) scores[j] += value_weight * v[j];
      for (const Index token :
           naive_best(part, scores, static_cast<Index>(ratio * static_cast<double>(lag)))) {
        kept.push_back(token);
      }
    }
    settled.insert(settled.end(), kept.begin(), kept.end());
    std::sort(settled.begin(), settled.end());
    settled.erase(std::unique(settled.begin(), settled.end()), settled.end());
    kept.insert(kept.end(), held.begin() + base, held.end());
    held = kept;
  };
  held = naive_visible_prompt(stream, prompt);
  if (!held.empty()) compress();
  KeptSets sets;
  for (Index row = prompt; row < stream.shape.tokens; ++row) {
    std::erase_if(held, [&](Index token) { return token < stream.shape.first_visible(row); });
    held.push_back(row);
    sets.push_back(held);
    compress();
  }
  return sets;
}

TEST_CASE("lagkv, worked: two partitions of two with references of range [0, 1]") {
  // Sink 0, partitions {1, 2}, {3, 4}, {5, 6}, token 7 behind them. References {3, 4} and {5, 6}
  // span [0, 1] in both channels; values of {3, 4} are constant and leave {1, 2} to the keys.
  const Rows keys{{9, 9}, {5, 5}, {0, 3}, {0, 0}, {1, 1}, {0, 0}, {1, 1}, {2, 7}, {4, 4}, {4, 4}};
  const Rows values{{9, 9}, {1, 8}, {8, 8}, {0, 9}, {0, 9}, {0, 0}, {1, 1}, {2, 2}, {4, 4}, {4, 4}};
  const auto owned = stream_of(keys, values, {Rows(10, {1.0, 1.0})});
  const auto kept = [&](const Given& given) {
    return kept_by("lagkv", owned->stream, 8, given).front();
  };
  // Deviations: of token 1 (5, 5) 0, of 2 (0, 3) 2.1: 2 ranks first. Tokens 3, 4 have equal keys'
  // and equal values' deviations (0 and 6.4): of equals the lower ranks first. Sink and tail {5, 6,
  // 7} stay; of equal ranks in two partitions the older one.
  CHECK(kept(kvpress(4, 2, 1)) == std::vector<Index>{0, 5, 6, 7, 8});
  CHECK(kept(kvpress(5, 2, 1)) == std::vector<Index>{0, 2, 5, 6, 7, 8});
  CHECK(kept(kvpress(6, 2, 1)) == std::vector<Index>{0, 2, 3, 5, 6, 7, 8});
  CHECK(kept(kvpress(7, 2, 1)) == std::vector<Index>{0, 1, 2, 3, 5, 6, 7, 8});
  // Scores themselves: 2 has (e^2.1 / (1 + e^2.1) + 1/2) / 2 = 0.70, 3 and 4 0.5, 1 0.30.
  CHECK(kept(kvpress(7, 2, 1, true)) == std::vector<Index>{0, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("lagkv, worked: released, partitions are halved as references come") {
  const Rows keys{{9, 9}, {5, 5}, {0, 3}, {0, 0}, {1, 1}, {0, 0}, {1, 1}, {2, 7}, {4, 4}, {4, 4}};
  const auto owned = stream_of(keys, Rows(10, {1.0}), {Rows(10, {1.0, 1.0})});
  // At the end of the prompt {1, 2} by {3, 4} leaves 2. Row 6 is answered over 0 2 3 4 5 6, then
  // {3, 4} by {5, 6} leaves 3; row 8 over 0 2 3 5 6 7 8, then {5, 6} by {7, 8}: 6 maps to
  // (-0.5, -1): 6 and 5 (-1, -4/3) deviate by 0.35 and 0.24.
  CHECK(kept_by("lagkv", owned->stream, 5, released(0.5, 2, 1)) == KeptSets{{0, 2, 3, 4, 5},
                                                                            {0, 2, 3, 4, 5, 6},
                                                                            {0, 2, 3, 5, 6, 7},
                                                                            {0, 2, 3, 5, 6, 7, 8},
                                                                            {0, 2, 3, 6, 7, 8, 9}});
  // A prompt of eight: {1, 2}, {3, 4} at once.
  CHECK(kept_by("lagkv", owned->stream, 8, released(0.5, 2, 1)).front() ==
        std::vector<Index>{0, 2, 3, 5, 6, 7, 8});
  // No place in a partition: int(0.4 * 2) = 0.
  CHECK(kept_by("lagkv", owned->stream, 8, released(0.4, 2, 1)).front() ==
        std::vector<Index>{0, 5, 6, 7, 8});
}

TEST_CASE("lagkv keeps what its definition keeps, on every stream, prompt, lag and budget") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 3},
      {.tokens = 60, .d = 5, .dv = 4, .window = 25},
      {.tokens = 60, .d = 64, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 60, .d = 3, .dv = 2, .kind = StreamKind::kZeroKeys},
      {.tokens = 60, .d = 1, .dv = 1}};
  Index ran = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    for (const Index prompt : {0, 1, 7, 20, 31, 59}) {
      for (const Index lag : {1, 2, 5, 8}) {
        for (const Index sinks : {0, 3, 10}) {
          CAPTURE(spec.d);
          CAPTURE(spec.window);
          CAPTURE(prompt);
          CAPTURE(lag);
          CAPTURE(sinks);
          for (const Index budget : {1, 8, 15, 24, 40}) {
            for (const bool cross : {false, true}) {
              CAPTURE(budget);
              CAPTURE(cross);
              const Given given = kvpress(budget, lag, sinks, cross);
              if (!skip_of("lagkv", stream.shape, prompt, given).empty()) continue;
              CHECK(kept_by("lagkv", stream, prompt, given) ==
                    naive_kvpress(stream, prompt, budget, lag, sinks, cross));
              ++ran;
            }
          }
          for (const double ratio : {0.0, 0.3, 0.5, 1.0}) {
            for (const double weight : {0.0, 1.0, 2.5}) {
              CAPTURE(ratio);
              CAPTURE(weight);
              const KeptSets ours =
                  kept_by("lagkv", stream, prompt, released(ratio, lag, sinks, weight));
              CHECK(ours == naive_released(stream, prompt, ratio, lag, sinks, weight));
            }
          }
        }
      }
    }
  }
  CHECK(ran > 1000);
}

TEST_CASE("a prompt shorter than sinks and two partitions leaves sinks and the most recent") {
  const auto owned = make_stream({.tokens = 60, .d = 5, .dv = 5});
  std::vector<Index> expected{0, 1, 2, 3};
  for (Index j = 11; j <= 19; ++j) expected.push_back(j);
  CHECK(kept_by("lagkv", owned->stream, 19, kvpress(12, 8, 4)).front() == expected);
  CHECK(kept_by("lagkv", owned->stream, 20, kvpress(12, 8, 4)).size() == 40);
  CHECK(kept_by("lagkv", owned->stream, 19, released(0.5, 8, 4)).front().size() == 20);
  CHECK(kept_by("lagkv", owned->stream, 20, released(0.5, 8, 4)).front().size() == 17);
}

TEST_CASE("sinks: auto is 4 in kvpress and 16 as released") {
  const auto owned = make_stream({.tokens = 80, .d = 5, .dv = 5});
  for (Given given : {kvpress(40, 8, 4), released(0.5, 8, 16)}) {
    const KeptSets sets = kept_by("lagkv", owned->stream, 70, given);
    std::erase_if(given, [](const auto& entry) { return entry.first == "sinks"; });
    CHECK(kept_by("lagkv", owned->stream, 70, given) == sets);
  }
}

TEST_CASE("lagkv is skipped if sinks and the last partition exceed the budget") {
  const StreamShape shape = make_stream({.tokens = 60})->stream.shape;
  // 40 = 4 sinks + 4 partitions of 8 + 4: the tail is 12.
  CHECK(!skip_of("lagkv", shape, 40, kvpress(15, 8, 4)).empty());
  CHECK(skip_of("lagkv", shape, 40, kvpress(16, 8, 4)).empty());
  CHECK(skip_of("lagkv", shape, 12, kvpress(12, 8, 4)).empty());
  CHECK(!skip_of("lagkv", shape, 12, kvpress(3, 8, 4)).empty());
  CHECK(skip_of("lagkv", shape, 40, released(0.5, 8, 4)).empty());
}

TEST_CASE("a parameter of the other semantics is a fault") {
  const AlgorithmDescription& lagkv = algorithm_named("lagkv");
  const auto fault = [&](const Given& given) {
    const auto found = lagkv.validate(params_for(lagkv, given));
    return found ? found->first : "";
  };
  CHECK(fault(kvpress(20, 8, 4)).empty());
  CHECK(fault(released(0.5, 8, 4)).empty());
  CHECK(fault({{"ratio", number(0.5)}}) == "budget");
  Given given = released(0.5, 8, 4);
  given.emplace_back("cross", Value{true});
  CHECK(fault(given) == "cross");
  given = kvpress(20, 8, 4);
  given.emplace_back("value_weight", number(2));
  CHECK(fault(given) == "value_weight");
}

}  // namespace lagkv_test
}  // namespace kvbench::test
