// kvzip: what a pass that repeats the prompt attends to, part by part, against the definition
// written out, for every scope.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "support/layer_of_streams.hpp"
#include "support/naive_attention.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace kvzip_test {

using Sets = std::vector<std::vector<Index>>;

constexpr Index kPrompt = 33;  // half of the tokens, which OwnedStream repeats
const StreamSpec kSpec{.tokens = 66, .d = 5, .dv = 2, .heads_per_kv = 2};

// Faults that a reading of the method may have.
struct Reading {
  bool whole_prompt = false;  // every token of the prompt in the softmax
  bool own_keys = true;       // and the keys of the pass
  bool before = true;         // and the tokens before the first part
  bool largest = true;        // over rows and heads; else their mean
};

Real logit(const Stream& stream, const double* query, const double* key) {
  Real x = 0;
  for (Index c = 0; c < stream.shape.d; ++c) x += static_cast<Real>(query[c]) * key[c];
  x *= stream.shape.scale;
  const Real cap = stream.shape.softcap;
  return cap > 0 ? cap * std::tanh(x / cap) : x;
}

// Scores of the prompt's tokens; infinite before the first part.
std::vector<Real> naive_scores(const Stream& stream, const Reading& reading = {}) {
  const RepeatPass& pass = *stream.shape.repeat;
  std::vector<Real> scores(pass.prompt(), 0);
  for (Index j = 0; j < pass.first(); ++j) scores[j] = 1e30L;
  Index behind = 0;
  for (const RepeatPass::Part& part : pass.parts) {
    for (Index r = 0; r < part.rows; ++r) {
      for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
        const double* query = stream.repeat_queries[g].row(behind + r);
        Real sum = std::exp(static_cast<Real>(stream.sink(g)));
        for (Index j = 0; j < pass.prompt(); ++j) {
          const bool is_there = reading.whole_prompt || (j >= part.first && j < part.end) ||
                                (j < pass.first() && reading.before);
          if (is_there) sum += std::exp(logit(stream, query, stream.keys.row(j)));
        }
        for (Index o = 0; o <= r && reading.own_keys; ++o) {
          sum += std::exp(logit(stream, query, stream.repeat_keys.row(behind + o)));
        }
        for (Index j = part.first; j < part.end; ++j) {
          const Real share = std::exp(logit(stream, query, stream.keys.row(j))) / sum;
          Real& score = scores[j];
          score = reading.largest ? std::max(score, share)
                                  : score + share / static_cast<Real>(part.rows);
        }
      }
    }
    behind += part.rows;
  }
  return scores;
}

// The best of all heads of the scope, `budget` on average besides the tokens before the first part.
Sets naive_kept(const LayerOfStreams& model, const std::string& scope, Index budget,
                const Reading& reading = {}) {
  Sets kept(model.streams.size());
  std::vector<std::tuple<Real, std::size_t, Index>> ranked;
  const auto take = [&](std::size_t heads) {
    const Index exact = model.streams.front()->shape.repeat->first();
    std::sort(ranked.begin(), ranked.end());
    ranked.resize(std::min(ranked.size(), heads * static_cast<std::size_t>(budget - exact)));
    for (const auto& [score, s, j] : ranked) kept[s].push_back(j);
    ranked.clear();
  };
  std::size_t heads = 0;
  for (std::size_t s = 0; s < model.streams.size(); ++s, ++heads) {
    const Stream& stream = *model.streams[s];
    const bool begins = s > 0 && (scope == "head" || (scope == "layer" && stream.id.kv_head == 0));
    if (begins) take(std::exchange(heads, 0));
    const std::vector<Real> scores = naive_scores(stream, reading);
    for (Index j = 0; j < kPrompt; ++j) {
      if (j < stream.shape.repeat->first()) {
        kept[s].push_back(j);
      } else {
        ranked.emplace_back(-scores[j], s, j);
      }
    }
  }
  take(heads);
  for (auto& set : kept) std::sort(set.begin(), set.end());
  return kept;
}

Given given(const std::string& scope, Index budget) {
  return {{"budget", count_of(budget)}, {"scope", word_of(scope)}};
}

// As a run calls it: with the streams of a layer, if that is the scope.
Sets kept(const LayerOfStreams& model, const std::string& scope, Index budget) {
  if (scope != "layer") return model.kept("kvzip", kPrompt, given(scope, budget));
  std::map<int, std::vector<const Stream*>> layers;
  for (const Stream* stream : model.streams) layers[stream->id.layer].push_back(stream);
  Sets out;
  for (const auto& [layer, streams] : layers) {
    for (const KeptSets& sets : kept_in_scope("kvzip", streams, kPrompt, given(scope, budget))) {
      out.push_back(sets.front());
      out.back().pop_back();  // the first decoded row's own token
    }
  }
  return out;
}

// Four tokens; the first is before the parts [1, 3) and [3, 4). Weights of a query 1 are the
// numbers that the keys are logarithms of.
std::unique_ptr<OwnedStream> by_hand() {
  const auto keys = [](std::initializer_list<double> weights) {
    Rows rows;
    for (const double weight : weights) rows.push_back({std::log(weight)});
    return rows;
  };
  const Rows values{{1}, {2}, {3}, {4}, {5}};
  auto owned = stream_of(keys({1, 3, 2, 5, 1}), values, {{{0}, {0}, {0}, {0}, {0}}});
  RepeatPass pass;
  pass.parts = {{1, 3, 2}, {3, 4, 1}};
  owned->stream.shape.repeat = std::make_shared<const RepeatPass>(pass);
  owned->repeat_keys = {std::log(2.0), std::log(1.0), std::log(4.0)};
  owned->repeat_queries = {{1, 2, 1}};
  owned->connect();
  return owned;
}

TEST_CASE("four tokens by hand: shares of a part, the tokens before it and the pass's own keys") {
  const auto owned = by_hand();
  const std::vector<Real> scores = naive_scores(owned->stream);
  // Row 0 sees weights 1 + 3 + 2 + 2; row 1, whose query is twice that, 1 + 9 + 4 + 4 + 1.
  CHECK(static_cast<double>(scores[1]) == doctest::Approx(9.0 / 19).epsilon(1e-15));
  CHECK(static_cast<double>(scores[2]) == doctest::Approx(2.0 / 8).epsilon(1e-15));
  // The second part's row: 1 + 5 + 4.
  CHECK(static_cast<double>(scores[3]) == doctest::Approx(5.0 / 10).epsilon(1e-15));
  const auto kept = [&](Index budget) {
    return kept_by("kvzip", owned->stream, 4, given("head", budget)).front();
  };
  CHECK(kept(1) == std::vector<Index>{0, 4});
  CHECK(kept(2) == std::vector<Index>{0, 3, 4});
  CHECK(kept(3) == std::vector<Index>{0, 1, 3, 4});
  CHECK(kept(4) == std::vector<Index>{0, 1, 2, 3, 4});
}

TEST_CASE("kvzip keeps what its definition keeps, over heads, layers and the model") {
  for (const StreamSpec& spec :
       {kSpec, StreamSpec{.tokens = 66, .d = 4, .dv = 2, .softcap = 1.5},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .heads_per_kv = 3, .sinks = true},
        StreamSpec{.tokens = 66, .d = 6, .dv = 2, .value_in_key = true}}) {
    for (const int layers : {1, 3}) {
      const LayerOfStreams model(spec, 2, layers);
      for (const std::string scope : {"head", "layer", "model"}) {
        for (const Index budget : {2, 3, 9, 20, 32, 33}) {
          CAPTURE(layers);
          CAPTURE(scope);
          CAPTURE(budget);
          CHECK(kept(model, scope, budget) == naive_kept(model, scope, budget));
        }
      }
    }
  }
}

TEST_CASE("what kvzip lacks is named: the pass, its prompt, room for the tokens before it") {
  StreamShape shape = make_stream(kSpec)->stream.shape;
  const auto says = [&](Index prompt, Index budget, const std::string& words) {
    const std::string reason = skip_of("kvzip", shape, prompt, given("head", budget));
    CAPTURE(reason);
    return words.empty() ? reason.empty() : reason.find(words) != std::string::npos;
  };
  CHECK(says(kPrompt, 12, ""));
  CHECK(says(kPrompt, 1, "smaller than the 2 before the first part"));
  CHECK(
      says(40, 12, "repeats the first 33 tokens, and the prompt has 40; set prompt_tokens to 33"));
  shape.window = 20;
  CHECK(says(kPrompt, 12, "sliding window"));
  shape.window = 0;
  shape.repeat = nullptr;
  CHECK(says(kPrompt, 12, "q_repeat"));
  CHECK(says(kPrompt, 12, "--repeat"));
}

TEST_CASE("where a layer of the scope has no such pass, or its logits overflow, cells fail") {
  LayerOfStreams model(kSpec, 2, 2);
  const auto fails = [&](const std::string& words) {
    try {
      kept(model, "model", 12);
      return false;
    } catch (const CellError& error) {
      return std::string(error.what()).find(words) != std::string::npos;
    }
  };
  CHECK(!fails(""));
  model.owned[3]->repeat_queries[1][7] = 1e308;  // row 1, column 2
  model.owned[3]->keys[3 * kSpec.d + 2] = 1e10;
  CHECK(fails("overflow"));
  model.owned[2]->stream.shape.repeat = nullptr;
  CHECK(fails("lacks q_repeat"));
}

}  // namespace kvzip_test
}  // namespace kvbench::test
