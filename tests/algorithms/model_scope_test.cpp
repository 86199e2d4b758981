// Keyformer's shared score: one set of tokens for all streams of a scope.
#include "algorithms/mechanisms/model_scope.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <any>
#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/mechanisms/last_lowest.hpp"
#include "kernels/kernels.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace model_scope_test {

constexpr Index kTokens = 40;
constexpr Index kPrompt = 24;
constexpr Index kBudget = 10;
constexpr Index kRecent = 3;

std::vector<std::unique_ptr<OwnedStream>> layers(int count, Index tokens = kTokens) {
  std::vector<std::unique_ptr<OwnedStream>> out;
  for (int layer = 0; layer < count; ++layer) {
    StreamSpec spec;
    spec.tokens = tokens;
    spec.heads_per_kv = 2;
    spec.seed = 7 + static_cast<std::uint64_t>(layer);
    spec.query_size = 3.0;
    out.push_back(make_stream(spec));
    out.back()->stream.id.layer = layer;
    // Later tokens draw more attention, so that old ones lose their places.
    for (Index j = 0; j < tokens; ++j) {
      const auto first = static_cast<std::size_t>(out.back()->stream.shape.d * j);
      out.back()->keys[first] += 0.5 * static_cast<double>(j);
      for (std::vector<double>& head : out.back()->queries) head[first] += 8.0;
    }
  }
  return out;
}

ModelTrace trace_of(const std::vector<std::unique_ptr<OwnedStream>>& streams,
                    const Scoring& scoring, double logit_bytes = kModelLogitBytes,
                    bool in_memory = false) {
  const ModelContext setting{[&](const std::function<void(const Stream&)>& visit) {
                               for (const auto& owned : streams) visit(owned->stream);
                             },
                             kPrompt, streams.front()->stream.shape.tokens, cpu_kernels(),
                             in_memory};
  return trace_model(setting, scoring, kBudget, kRecent, 0, logit_bytes);
}

// Softmax of one row and query head over `kept`, densely.
std::vector<double> scores(const Stream& stream, int g, Index row, double tau,
                           const std::vector<Index>& kept) {
  std::vector<double> out;
  double sum = 0.0;
  for (const Index j : kept) {
    double x = 0.0;
    for (Index k = 0; k < stream.shape.d; ++k) x += stream.query(g, row)[k] * stream.keys(j, k);
    out.push_back(std::exp(stream.shape.scale * x / tau));
    sum += out.back();
  }
  for (double& score : out) score /= sum;
  return out;
}

// The rule token by token: f over all streams and heads, then one token goes.
ModelTrace naive_trace(const std::vector<std::unique_ptr<OwnedStream>>& streams, double tau_init,
                       double tau_step) {
  std::vector<double> f(kTokens, 0.0);
  const auto add = [&](Index row, double tau, const std::vector<Index>& kept) {
    for (const auto& owned : streams) {
      for (int g = 0; g < owned->stream.shape.heads_per_kv; ++g) {
        const std::vector<double> s = scores(owned->stream, g, row, tau, kept);
        for (std::size_t p = 0; p < kept.size(); ++p) f[kept[p]] += s[p];
      }
    }
  };
  for (Index row = 0; row < kPrompt; ++row) {
    std::vector<Index> seen;
    for (Index j = 0; j <= row; ++j) seen.push_back(j);
    add(row, tau_init, seen);
  }
  std::vector<Index> order;
  for (Index j = 0; j < kPrompt - kRecent; ++j) order.push_back(j);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return f[a] > f[b]; });
  order.resize(kBudget - kRecent);
  std::sort(order.begin(), order.end());
  for (Index j = kPrompt - kRecent; j < kPrompt; ++j) order.push_back(j);
  ModelTrace trace;
  trace.prompt_kept = order;
  for (Index row = kPrompt; row < kTokens; ++row) {
    order.push_back(row);
    add(row, tau_init + static_cast<double>(row - kPrompt + 1) * tau_step, order);
    std::size_t lowest = 0;
    for (std::size_t p = 0; p < order.size() && order[p] <= row - kRecent; ++p) {
      if (f[order[p]] <= f[order[lowest]]) {
        lowest = p;
      }
    }
    trace.evicted.push_back(order[lowest]);
    order.erase(order.begin() + static_cast<Index>(lowest));
  }
  return trace;
}

TEST_CASE("the shared score keeps what a dense sum over all layers and heads keeps") {
  const auto streams = layers(3);
  Scoring scoring;
  scoring.tau_step = 1.0 / 16.0;
  const ModelTrace trace = trace_of(streams, scoring);
  const ModelTrace naive = naive_trace(streams, 1.0, 1.0 / 16.0);
  CHECK(trace.prompt_kept == naive.prompt_kept);
  CHECK(trace.evicted == naive.evicted);
}

TEST_CASE("the trace does not depend on how many rows' logits are held, however few") {
  const auto streams = layers(3);
  Scoring scoring;
  scoring.noise = LogitNoise::Kind::kGumbel;
  const ModelTrace whole = trace_of(streams, scoring);
  // 6 query heads: rows of 11 columns and more, one, three or five at a time.
  for (const double bytes : {1.0, 8.0 * 6 * 3 * 13, 8.0 * 6 * 5 * 15}) {
    CAPTURE(bytes);
    const ModelTrace cut = trace_of(streams, scoring, bytes);
    CHECK(cut.prompt_kept == whole.prompt_kept);
    CHECK(cut.evicted == whole.evicted);
  }
}

TEST_CASE("the trace does not depend on whether the streams are in memory") {
  const auto streams = layers(3, 200);
  Scoring scoring;
  scoring.noise = LogitNoise::Kind::kGumbel;
  const ModelTrace read = trace_of(streams, scoring);
  const ModelTrace held = trace_of(streams, scoring, kModelLogitBytes, true);
  CHECK(held.prompt_kept == read.prompt_kept);
  CHECK(held.evicted == read.evicted);
}

TEST_CASE("of equally low scores the last one's token goes") {
  const double nan = std::nan("");
  const auto naive = [](const std::vector<double>& scores) {
    std::size_t lowest = 0;
    for (std::size_t p = 1; p < scores.size(); ++p) {
      if (scores[p] <= scores[lowest]) lowest = p;
    }
    return lowest;
  };
  CHECK(last_lowest(std::vector<double>{3.0}.data(), 1) == 0);
  CHECK(last_lowest(std::vector<double>{2.0, 1.0, 1.0, 5.0}.data(), 4) == 2);
  for (std::size_t count = 1; count < 40; ++count) {
    for (std::size_t seed = 0; seed < 20; ++seed) {
      std::vector<double> scores;
      for (std::size_t p = 0; p < count; ++p) {
        const std::size_t draw = (p + 1) * (2 * seed + 3) * 2654435761U % 1009 % 7;
        scores.push_back(draw == 6 && seed % 4 == 0 ? nan : static_cast<double>(draw) - 1.0);
        if (draw == 1 && p % 2 == 0) scores.back() = -0.0;
      }
      CAPTURE(count);
      CAPTURE(seed);
      CHECK(last_lowest(scores.data(), count) == naive(scores));
    }
  }
}

TEST_CASE("one stream's shared score is its own sum over heads") {
  const auto streams = layers(1);
  const AlgorithmDescription& keyformer = algorithm_named("keyformer");
  const auto given = [](const char* scope) {
    return std::vector<std::pair<std::string, Value>>{{"budget", Value{kBudget}},
                                                      {"recent_fraction", Value{0.3}},
                                                      {"group", Value{std::string("sum")}},
                                                      {"scope", Value{std::string(scope)}}};
  };
  const Params own = params_for(keyformer, given("layer"));
  const Params shared = params_for(keyformer, given("model"));
  const ModelWork work = keyformer.model_work(shared, 5);
  SharedResults results;
  results.add(work, ModelContext{[&](const std::function<void(const Stream&)>& visit) {
                                   visit(streams[0]->stream);
                                 },
                                 kPrompt, kTokens, cpu_kernels()});
  const auto follower =
      keyformer.create(shared, {streams[0]->stream, kPrompt, 5, cpu_kernels(), results});
  follower->extend(0, kPrompt);
  follower->finish_prompt();
  const auto expected = kept_sets(sketches(streams[0]->stream, kPrompt, keyformer, own, 5));
  for (Index row = kPrompt; row < kTokens; ++row) {
    follower->extend(row, row + 1);
    CHECK(kept_tokens(follower->sketch()) == expected[row - kPrompt]);
  }
}

TEST_CASE("shared results that failed give their reason to every cell that asks") {
  const PromptScores work(Scoring{}, 0);
  SharedResults results;
  results.fail(WorkKey(work), "logits of the prompt overflow");
  CHECK_THROWS_WITH_AS(results.get(work), "logits of the prompt overflow", CellError);
}

TEST_CASE("what deciding for a scope takes, added up by hand") {
  // Six KV heads of two query heads each, d = 4, 50 prompt tokens.
  const ScopeSize size{6, 2, 4, 50, 60};
  const auto bytes = [&](const char* id, const Given& given) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    return algorithm.model_work(params_for(algorithm, given), 0).bytes(size);
  };
  const auto cake = [&](Index window) {
    return bytes("cake", {{"budget", count_of(20)}, {"window", count_of(window)}});
  };
  // Scores of six heads; of one, logits and exponentials of the window's rows, two query heads.
  CHECK(cake(8) == 8.0 * 50 * (6 + 2 * 8 * 2 + 3));
  CHECK(cake(9) == cake(8) + 8.0 * 50 * 2 * 2);
  const auto compactor = [&](Index sketch) {
    return bytes("compactor", {{"budget", count_of(20)}, {"sketch", count_of(sketch)}});
  };
  // Two scores of six heads; of one, keys, sketched keys, projection, Gram matrix and its factor.
  CHECK(compactor(0) == 8.0 * (50 * (12 + 3 + 4 + 4) + 2 * 4 * (4 + 4)));
  CHECK(compactor(30) == 8.0 * (50 * (12 + 3 + 4 + 30) + 2 * 30 * (4 + 30)));
}

}  // namespace model_scope_test
}  // namespace kvbench::test
