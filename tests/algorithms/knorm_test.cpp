// knorm: which norms stay, once and streaming, and what they do not depend on.
#include <doctest/doctest.h>

#include <cmath>

#include "algorithms/mechanisms/token_ranking.hpp"
#include "kernels/cpu_kernels.hpp"
#include "support/given.hpp"
#include "support/naive_ranking.hpp"
#include "support/owned_stream.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace knorm_test {

Given knorm(Index budget, Index sinks = 0, Index recent = 0, const char* semantics = "once",
            const char* metric = "key") {
  return {{"budget", count_of(budget)},
          {"sinks", count_of(sinks)},
          {"recent", count_of(recent)},
          {"semantics", word_of(semantics)},
          {"metric", word_of(metric)}};
}

NaiveScores naive_norms(const Stream& stream, bool by_value = false) {
  return [&stream, by_value](const std::vector<Index>& tokens) {
    const ConstMatrix rows = by_value ? stream.values : stream.keys;
    std::vector<Real> scores;
    for (const Index token : tokens) {
      Real sum = 0;
      for (Index k = 0; k < rows.cols; ++k) {
        sum += static_cast<Real>(rows(token, k)) * static_cast<Real>(rows(token, k));
      }
      scores.push_back(by_value ? std::sqrt(sum) : -std::sqrt(sum));
    }
    return scores;
  };
}

// Keys of one number, whose norms are these.
std::unique_ptr<OwnedStream> stream_with_norms(const std::vector<double>& norms) {
  Rows keys;
  Rows ones;
  for (std::size_t j = 0; j < norms.size(); ++j) {
    keys.push_back({j % 2 == 0 ? norms[j] : -norms[j]});
    ones.push_back({1.0});
  }
  return stream_of(keys, ones, {ones});
}

TEST_CASE("knorm, worked: eight prompt tokens, the smallest norms, sinks and recent") {
  const auto owned = stream_with_norms({5, 1, 4, 2, 2, 9, 2, 7, 8, 3});
  const auto kept = [&](const Given& given) { return kept_by("knorm", owned->stream, 8, given); };
  // Norms 1 and 2 2 2: of equals the lower tokens.
  CHECK(kept(knorm(3)) == KeptSets{{1, 3, 4, 8}, {1, 3, 4, 8, 9}});
  // Token 0 and tokens 6, 7 stay whatever they are.
  CHECK(kept(knorm(5, 1, 2)) == KeptSets{{0, 1, 3, 6, 7, 8}, {0, 1, 3, 6, 7, 8, 9}});
  CHECK(kept(knorm(3, 1, 2)).front() == std::vector<Index>{0, 6, 7, 8});
  // Row 8's token of norm 8 is evicted after its answer, before token 9 comes.
  CHECK(kept(knorm(3, 0, 0, "streaming")) == KeptSets{{1, 3, 4, 8}, {1, 3, 4, 9}});
  // The last two stay: 6, 7 and then 7, 8; token 6 of norm 2 then competes with 1, 3.
  CHECK(kept(knorm(4, 0, 2, "streaming")) == KeptSets{{1, 3, 6, 7, 8}, {1, 3, 7, 8, 9}});
}

TEST_CASE("knorm, worked: metric value keeps the largest values") {
  const auto owned =
      stream_of({{1}, {1}, {1}, {1}, {1}}, {{1}, {-5}, {3}, {3}, {0}}, {{{1}, {1}, {1}, {1}, {1}}});
  CHECK(kept_by("knorm", owned->stream, 4, knorm(2, 0, 0, "once", "value")).front() ==
        std::vector<Index>{1, 2, 4});
}

TEST_CASE("knorm keeps what its definition keeps, on every stream, window, prompt and budget") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 5, .dv = 3, .heads_per_kv = 3},
      {.tokens = 50, .d = 5, .dv = 3, .window = 17},
      {.tokens = 50, .d = 1, .dv = 1, .kind = StreamKind::kTies},
      {.tokens = 50, .d = 3, .dv = 2, .window = 20, .kind = StreamKind::kTies},
      {.tokens = 50, .d = 64, .dv = 2, .kind = StreamKind::kClustered},
      {.tokens = 50, .d = 3, .dv = 2, .kind = StreamKind::kZeroKeys}};
  Index ran = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    for (const Index prompt : {0, 1, 7, 30, 49}) {
      for (const Index budget : {1, 6, 12, 30, 60}) {
        for (const auto& [sinks, recent] :
             {std::pair<Index, Index>{0, 0}, {3, 0}, {0, 4}, {2, 4}}) {
          for (const bool by_value : {false, true}) {
            const char* metric = by_value ? "value" : "key";
            const NaiveCut cut{budget, sinks, recent};
            CAPTURE(spec.window);
            CAPTURE(prompt);
            CAPTURE(budget);
            CAPTURE(sinks);
            CAPTURE(recent);
            const Given once = knorm(budget, sinks, recent, "once", metric);
            if (skip_of("knorm", stream.shape, prompt, once).empty()) {
              CHECK(kept_by("knorm", stream, prompt, once) ==
                    naive_once(stream, prompt, cut, naive_norms(stream, by_value)));
              ++ran;
            }
            const Given streaming = knorm(budget, sinks, recent, "streaming", metric);
            if (skip_of("knorm", stream.shape, prompt, streaming).empty()) {
              CHECK(kept_by("knorm", stream, prompt, streaming) ==
                    naive_streaming_cut(stream, prompt, cut, naive_norms(stream, by_value)));
              ++ran;
            }
          }
        }
      }
    }
  }
  CHECK(ran > 2000);
}

TEST_CASE("a score that is not a number fails the cell, once and at the row that brings it") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2});
  const SharedResults shared;
  const CellContext context{owned->stream, 20, 0, cpu_kernels(), shared};
  const auto score = [](Index token) { return token == 25 ? std::nan("") : 1.0; };
  RankedStream streaming(context, {.budget = 8}, score);
  streaming.finish_prompt();
  streaming.extend(20, 25);
  CHECK_THROWS_WITH_AS(streaming.extend(25, 26), "scores of tokens overflow", CellError);
  RankedPrompt once(context, {.budget = 8}, each_scored_by([](Index) { return std::nan(""); }));
  CHECK_THROWS_WITH_AS(once.finish_prompt(), "scores of tokens overflow", CellError);
}

TEST_CASE("knorm is skipped if a budget leaves less than sinks and recent, or nothing") {
  const StreamShape shape = make_stream({.tokens = 60})->stream.shape;
  CHECK(skip_of("knorm", shape, 40, knorm(7, 3, 4)).empty());
  CHECK(!skip_of("knorm", shape, 40, knorm(6, 3, 4)).empty());
  CHECK(skip_of("knorm", shape, 7, knorm(7, 3, 5)).empty());  // the prompt fits
  CHECK(!skip_of("knorm", shape, 40, knorm(6, 3, 4, "streaming")).empty());
  CHECK(!skip_of("knorm", shape, 5, knorm(6, 3, 4, "streaming")).empty());
  CHECK(skip_of("knorm", shape, 5, knorm(7, 3, 4, "streaming")).empty());
  for (const char* semantics : {"once", "streaming"}) {
    Given given = knorm(1, 0, 0, semantics);
    given.front().second = number(0.02);  // floor(0.02 * 40) = 0
    CHECK(skip_of("knorm", shape, 40, given).find("0 tokens") != std::string::npos);
  }
}

}  // namespace knorm_test
}  // namespace kvbench::test
