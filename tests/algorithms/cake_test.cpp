// cake: budgets over layers by entropy and variance, scores by mean and variance, against the
// definitions written out over dense attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "support/layer_of_streams.hpp"
#include "support/naive_observation_window.hpp"

namespace kvbench::test {
namespace cake_test {

using Sets = std::vector<std::vector<Index>>;

constexpr Index kPrompt = 60;
constexpr Index kWindow = 6;

struct Rule {
  Index budget = 16;
  double gamma = 200;
  double tau1 = 1;
  double tau2 = 1;
  bool allocate = true;
};

Given given(const Rule& rule) {
  return {{"budget", count_of(rule.budget)}, {"window", count_of(kWindow)},
          {"gamma", number(rule.gamma)},     {"kernel", count_of(3)},
          {"tau1", number(rule.tau1)},       {"tau2", number(rule.tau2)},
          {"allocate", Value{rule.allocate}}};
}

struct Watched {
  Real entropy = 0;
  Real variance = 0;
  std::vector<Real> scores;  // pooled, mean over the group
};

Watched watched(const Stream& stream, double gamma) {
  constexpr Index kMiddle = kPrompt - kWindow;
  Watched out;
  out.scores.assign(kMiddle, 0);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    std::vector<Real> score;
    for (Index j = 0; j < kMiddle; ++j) {
      std::vector<Real> a;
      for (Index i = kMiddle; i < kPrompt; ++i) {
        a.push_back(naive_row(stream, g, i).p[j]);
      }
      const Real mean = std::accumulate(a.begin(), a.end(), Real{0}) / kWindow;
      Real variance = 0;
      for (const Real each : a) {
        variance += (each - mean) * (each - mean) / (kWindow - 1);
        out.entropy -= each * std::log(each + 1e-10L);
      }
      out.variance += variance;
      score.push_back(mean + static_cast<Real>(gamma) * variance);
    }
    const auto pools = naive_pooled(score, {kWindow, 3, true, "mean"});
    for (std::size_t j = 0; j < pools.size(); ++j) {
      out.scores[j] += pools[j] / stream.shape.heads_per_kv;
    }
  }
  return out;
}

// Shares of `total` tokens over layers of `most`, step by step.
std::vector<Index> naive_budgets(const std::vector<Real>& preference, Index mean, Index most) {
  const auto layers = std::ssize(preference);
  const Real sum = std::accumulate(preference.begin(), preference.end(), Real{0});
  std::vector<Index> b;
  for (const Real p : preference) {
    b.push_back(static_cast<Index>(p / sum * static_cast<Real>(mean * layers)));
  }
  const auto one_by_one = [&](Index amount, const auto& may) {
    std::vector<std::size_t> places;
    for (std::size_t l = 0; l < b.size(); ++l) {
      if (may(b[l])) places.push_back(l);
    }
    for (Index k = 0; !places.empty() && k < std::abs(amount); ++k) {
      b[places[static_cast<std::size_t>(k) % places.size()]] += amount < 0 ? -1 : 1;
    }
  };
  Index excess = 0;
  for (Index& each : b) {
    excess += std::max<Index>(0, each - most);
    each = std::min(each, most);
  }
  const auto below = [&](Index tokens) { return tokens < most; };
  one_by_one(excess, below);
  const Index missing = mean * layers - std::accumulate(b.begin(), b.end(), Index{0});
  if (missing > 0) one_by_one(missing, below);
  if (missing < 0) one_by_one(missing, [](Index tokens) { return tokens > 1; });
  for (Index& each : b) each = std::clamp<Index>(each, 0, most);
  return b;
}

struct Naive {
  std::vector<Index> budgets;  // by layer
  Sets kept;                   // by stream
};

Naive naive(const LayerOfStreams& model, const Rule& rule) {
  std::vector<Watched> each;
  std::vector<Real> entropy;
  std::vector<Real> variance;
  for (const Stream* stream : model.streams) {
    each.push_back(watched(*stream, rule.gamma));
    entropy.resize(static_cast<std::size_t>(stream->id.layer) + 1, 0);
    variance.resize(entropy.size(), 0);
    entropy.back() += each.back().entropy;
    variance.back() += each.back().variance;
  }
  std::vector<Real> preference;
  for (std::size_t l = 0; l < entropy.size(); ++l) {
    preference.push_back(std::pow(entropy[l], 1 / static_cast<Real>(rule.tau1)) *
                         std::pow(variance[l], 1 / static_cast<Real>(rule.tau2)));
  }
  const Index mean = rule.budget - kWindow;
  Naive out;
  out.budgets = rule.allocate ? naive_budgets(preference, mean, kPrompt - kWindow)
                              : std::vector<Index>(preference.size(), mean);
  for (std::size_t s = 0; s < each.size(); ++s) {
    const auto layer = static_cast<std::size_t>(model.streams[s]->id.layer);
    out.kept.push_back(naive_observation_kept(*model.streams[s], kPrompt, kWindow, each[s].scores,
                                              out.budgets[layer]));
  }
  return out;
}

const StreamSpec kSpec{.tokens = 66, .d = 5, .dv = 2, .heads_per_kv = 2};

TEST_CASE("cake keeps what its definitions keep, for every temperature, gamma and budget") {
  for (const StreamSpec& spec :
       {kSpec, StreamSpec{.tokens = 66, .d = 4, .dv = 2, .softcap = 3.0},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .heads_per_kv = 2, .sinks = true},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .alibi = true}}) {
    for (const int layers : {1, 3}) {
      const LayerOfStreams model(spec, 2, layers);
      for (const Rule& rule :
           {Rule{}, Rule{.budget = 7}, Rule{.budget = 30}, Rule{.budget = 53}, Rule{.gamma = 0},
            Rule{.tau1 = 1.6, .tau2 = 0.4}, Rule{.tau1 = 0.4, .tau2 = 2}, Rule{.allocate = false},
            Rule{.budget = 40, .tau1 = 0.2, .tau2 = 0.3}}) {
        CAPTURE(layers);
        CAPTURE(rule.budget);
        CAPTURE(rule.tau1);
        CHECK(model.kept("cake", kPrompt, given(rule)) == naive(model, rule).kept);
      }
    }
  }
}

TEST_CASE("budgets add up to L (budget - window); one that exceeds its layer's tokens is spread") {
  const LayerOfStreams model(kSpec, 1, 3);
  for (const Rule& rule : {Rule{}, Rule{.tau2 = 0.2}, Rule{.budget = 40, .tau2 = 0.1}}) {
    Index sum = 0;
    std::vector<Index> budgets;
    for (std::size_t l = 0; l < 3; ++l) {
      const Derived derived = model.derived("cake", kPrompt, given(rule), l);
      budgets.push_back(static_cast<Index>(derived_real(derived, "selected")));
      sum += budgets.back();
    }
    CHECK(budgets == naive(model, rule).budgets);
    CHECK(sum == 3 * (rule.budget - kWindow));
    // The last of them binds.
    const Index most = *std::max_element(budgets.begin(), budgets.end());
    CHECK((most == kPrompt - kWindow) == (rule.budget == 40));
  }
}

TEST_CASE("where no query of the window is stored, cake reports no figures of it") {
  LayerOfStreams model(kSpec, 1, 2);
  const Rule whole{.budget = 54};
  CHECK(model.derived("cake", kPrompt, given(whole), 0).size() == 4);
  for (auto& owned : model.owned) owned->stream.shape.first_query = kPrompt;
  const Derived derived = model.derived("cake", kPrompt, given(whole), 0);
  REQUIRE(derived.size() == 1);
  CHECK(derived.front().first == "selected");
}

TEST_CASE("where another layer of the scope lacks queries of the window, cake's cells fail") {
  LayerOfStreams model(kSpec, 2, 2);
  const auto why = [&](const Rule& rule) { return model.failure("cake", kPrompt, given(rule)); };
  const auto lacks_queries = [&](const Rule& rule) {
    return why(rule).find("layer of the scope") != std::string::npos;
  };
  CHECK(why({}).empty());
  for (std::size_t s = 2; s < 4; ++s) {
    model.owned[s]->stream.shape.first_query = kPrompt - kWindow + 1;
  }
  CHECK(lacks_queries({}));
  CHECK(lacks_queries({.allocate = false}));
  CHECK(why({.budget = 54}).empty());  // kept whole
  const Derived whole = model.derived("cake", kPrompt, given({.budget = 54}), 0);
  CHECK(whole.size() == 3);  // entropy and variance of its own layer, no preference
}

TEST_CASE("cake is skipped on sliding layers, without queries, and without tokens to select") {
  StreamShape shape = make_stream(kSpec)->stream.shape;
  CHECK(skip_of("cake", shape, kPrompt, given({})).empty());
  CHECK(!skip_of("cake", shape, kPrompt, given({.budget = 6})).empty());
  shape.first_query = kPrompt - kWindow + 1;
  CHECK(!skip_of("cake", shape, kPrompt, given({})).empty());
  CHECK(skip_of("cake", shape, kPrompt, given({.budget = 54})).empty());
  shape.first_query = 0;
  shape.window = 20;
  CHECK(skip_of("cake", shape, kPrompt, given({})).find("sliding") != std::string::npos);
}

}  // namespace cake_test
}  // namespace kvbench::test
