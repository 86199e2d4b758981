// keydiff: keys unlike the mean direction, at once and in blocks, and what the sets do not depend
// on.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_ranking.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace keydiff_test {

Given keydiff(Index budget, Index block = 0, Index sinks = 0, Index recent = 0) {
  return {{"budget", count_of(budget)},
          {"block", count_of(block)},
          {"sinks", count_of(sinks)},
          {"recent", count_of(recent)}};
}

// Minus torch's cosine_similarity with the mean of torch's normalised keys.
NaiveScores naive_unlikeness(const Stream& stream) {
  return [&stream](const std::vector<Index>& tokens) {
    const Index d = stream.shape.d;
    const auto norm = [d](const auto& at) {
      Real sum = 0;
      for (Index k = 0; k < d; ++k) sum += at(k) * at(k);
      return std::sqrt(sum);
    };
    const auto key = [&stream](Index token) {
      return [&stream, token](Index k) { return static_cast<Real>(stream.keys(token, k)); };
    };
    std::vector<Real> mean(d, 0);
    for (const Index token : tokens) {
      for (Index k = 0; k < d; ++k) {
        mean[k] += key(token)(k) / std::max<Real>(norm(key(token)), 1e-12L) /
                   static_cast<Real>(tokens.size());
      }
    }
    const auto of_mean = [&mean](Index k) { return mean[k]; };
    std::vector<Real> scores;
    for (const Index token : tokens) {
      Real dot = 0;
      for (Index k = 0; k < d; ++k) dot += key(token)(k) * of_mean(k);
      scores.push_back(
          -dot / (std::max<Real>(norm(key(token)), 1e-8L) * std::max<Real>(norm(of_mean), 1e-8L)));
    }
    return scores;
  };
}

KeptSets naive_keydiff(const Stream& stream, Index prompt, const NaiveCut& cut, Index block) {
  const NaiveScores scores = naive_unlikeness(stream);
  if (block == 0) return naive_once(stream, prompt, cut, scores);
  std::vector<Index> held;
  Index waiting = 0;  // tokens of the block
  for (const Index token : naive_visible_prompt(stream, prompt)) {
    held.push_back(token);
    if (std::ssize(held) > cut.budget) ++waiting;
    if (waiting == block || token == prompt - 1) {
      held = naive_cut(held, cut, scores);
      waiting = 0;
    }
  }
  return naive_then_append(stream, prompt, held);
}

std::vector<Index> first_row(const Stream& stream, Index prompt, const Given& given) {
  return kept_by("keydiff", stream, prompt, given).front();
}

TEST_CASE("keydiff, worked: a cross of keys in the plane") {
  // Unit keys right (three times), up, left: their sum is (2, 1), so the cosines times sqrt(5) are
  // 2 2 2 1 -2. The length of a key does not matter.
  const Rows values(7, {1.0});
  const Rows queries(7, {1.0, 0.0});
  const auto stream =
      stream_of({{8, 0}, {1, 0}, {2, 0}, {0, 4}, {-0.125, 0}, {1, 0}, {1, 0}}, values, {queries});
  CHECK(first_row(stream->stream, 5, keydiff(1)) == std::vector<Index>{4, 5});
  CHECK(first_row(stream->stream, 5, keydiff(2)) == std::vector<Index>{3, 4, 5});
  // The lowest of the three equal ones is kept.
  CHECK(first_row(stream->stream, 5, keydiff(3)) == std::vector<Index>{0, 3, 4, 5});
  CHECK(first_row(stream->stream, 5, keydiff(3, 0, 1, 1)) == std::vector<Index>{0, 3, 4, 5});
  CHECK(first_row(stream->stream, 5, keydiff(2, 0, 2, 0)) == std::vector<Index>{0, 1, 5});
  // One at a time from {0, 1}: of 0 1 2 the lowest two; of 0 1 3 the mean is (2, 1) / 3, so 3 and
  // 0; of 0 3 4 it is (0, 1) / 3: 0 and 4 are level, 3 goes.
  CHECK(first_row(stream->stream, 5, keydiff(2, 1)) == std::vector<Index>{0, 4, 5});
  // Two at a time: of 0 1 2 3 again 3 and 0; the last block is token 4 alone.
  CHECK(first_row(stream->stream, 5, keydiff(2, 2)) == std::vector<Index>{0, 4, 5});
  CHECK(first_row(stream->stream, 5, keydiff(2, 3)) == std::vector<Index>{3, 4, 5});
}

// Not with a budget of 1: two keys are equally like their mean direction.
TEST_CASE("keydiff keeps what its definition keeps, at once and in blocks") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 5, .dv = 3, .heads_per_kv = 3},
      {.tokens = 50, .d = 5, .dv = 3, .window = 17},
      {.tokens = 50, .d = 64, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 50, .d = 3, .dv = 2, .kind = StreamKind::kZeroKeys}};
  Index ran = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    for (const Index prompt : {0, 1, 7, 30, 49}) {
      for (const Index budget : {2, 6, 12, 30, 60}) {
        for (const auto& [sinks, recent] :
             {std::pair<Index, Index>{0, 0}, {3, 0}, {0, 4}, {2, 4}}) {
          for (const Index block : {0, 1, 4, 10, 100}) {
            CAPTURE(spec.window);
            CAPTURE(prompt);
            CAPTURE(budget);
            CAPTURE(sinks);
            CAPTURE(recent);
            CAPTURE(block);
            const Given given = keydiff(budget, block, sinks, recent);
            if (!skip_of("keydiff", stream.shape, prompt, given).empty()) continue;
            CHECK(kept_by("keydiff", stream, prompt, given) ==
                  naive_keydiff(stream, prompt, {budget, sinks, recent}, block));
            ++ran;
          }
        }
      }
    }
  }
  CHECK(ran > 1500);
}

TEST_CASE("of equal or zero keys the lowest tokens stay") {
  for (const StreamKind kind : {StreamKind::kEqualKeys, StreamKind::kZeroKeys}) {
    const auto owned = make_stream({.tokens = 30, .d = 3, .dv = 2, .kind = kind});
    for (const Index block : {0, 4}) {
      CHECK(first_row(owned->stream, 20, keydiff(5, block)) ==
            std::vector<Index>{0, 1, 2, 3, 4, 20});
    }
  }
}

TEST_CASE("keydiff is skipped as other methods with sinks and recent tokens are") {
  const StreamShape shape = make_stream({.tokens = 60})->stream.shape;
  CHECK(skip_of("keydiff", shape, 40, keydiff(7, 0, 3, 4)).empty());
  CHECK(!skip_of("keydiff", shape, 40, keydiff(6, 0, 3, 4)).empty());
  CHECK(skip_of("keydiff", shape, 6, keydiff(6, 0, 3, 4)).empty());
}

}  // namespace keydiff_test
}  // namespace kvbench::test
