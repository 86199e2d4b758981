// laprox: products of norms, and one ranking over a model's KV heads, against the definitions
// written out over dense attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/layer_of_streams.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {
namespace laprox_test {

using Sets = std::vector<std::vector<Index>>;

constexpr Index kPrompt = 60;
constexpr Index kWindow = 6;
constexpr Index kMiddle = kPrompt - kWindow;

struct Rule {
  Index budget = 16;
  Index kernel = 1;
  bool products = false;
  std::string norm = "wo_l2";
};

Given given(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},
          {"window", count_of(kWindow)},
          {"kernel", count_of(rule.kernel)},
          {"average", word_of(rule.products ? "products" : "attention")},
          {"norm", word_of(rule.norm)}};
}

Real value_size(const Stream& stream, int g, Index token, const std::string& norm) {
  if (norm == "wo_l1") return stream.wo_v_l1[g][token];
  Real squares = 0;
  if (norm == "value_l2") {
    for (Index k = 0; k < stream.shape.dv; ++k) {
      squares += Real{stream.values(token, k)} * Real{stream.values(token, k)};
    }
    return std::sqrt(squares);
  }
  const UnfilledDoubles projection = stream.output_projection(g);
  const Index hidden = stream.shape.hidden;
  for (Index c = 0; c < hidden; ++c) {
    Real sum = 0;
    for (Index k = 0; k < stream.shape.dv; ++k) {
      sum += Real{stream.values(token, k)} * Real{projection[k * hidden + c]};
    }
    squares += sum * sum;
  }
  return std::sqrt(squares);
}

std::vector<Real> averaged(const std::vector<Real>& sizes, Index kernel) {
  std::vector<Real> out(sizes.size(), 0);
  for (Index j = 0; j < std::ssize(sizes); ++j) {
    for (Index i = std::max<Index>(0, j - kernel / 2);
         i < std::min(std::ssize(sizes), j + kernel / 2 + 1); ++i) {
      out[j] += sizes[i] / static_cast<Real>(kernel);
    }
  }
  return out;
}

std::vector<Real> naive_scores(const Stream& stream, const Rule& rule) {
  const int heads = stream.shape.heads_per_kv;
  std::vector<Real> of_mean(kMiddle, 0);
  std::vector<std::vector<Real>> of_head(heads, std::vector<Real>(kMiddle, 0));
  for (Index row = kMiddle; row < kPrompt; ++row) {
    std::vector<Real> mean(kMiddle, 0);
    for (int g = 0; g < heads; ++g) {
      const std::vector<Real> weights = naive_row(stream, g, row).p;
      for (Index j = 0; j < kMiddle; ++j) {
        mean[j] += weights[j] / heads;
        of_head[g][j] += weights[j] * weights[j];
      }
    }
    for (Index j = 0; j < kMiddle; ++j) of_mean[j] += mean[j] * mean[j];
  }
  const auto columns = [&](std::vector<Real> squares) {
    for (Real& x : squares) x = std::sqrt(x);
    return averaged(squares, rule.kernel);
  };
  std::vector<Real> scores(kMiddle, 0);
  for (int g = 0; g < heads; ++g) {
    const std::vector<Real> sizes = columns(rule.products ? of_head[g] : of_mean);
    for (Index j = 0; j < kMiddle; ++j) {
      scores[j] += sizes[j] * value_size(stream, g, j, rule.norm) / heads;
    }
  }
  return scores;
}

// `heads` streams per layer.
Sets naive(const LayerOfStreams& model, std::size_t heads, const Rule& rule) {
  struct Place {
    Real score;
    std::size_t stream;
    Index token;
  };
  std::vector<Place> places;
  for (std::size_t s = 0; s < model.streams.size(); s += heads) {
    std::vector<std::vector<Real>> layer;
    Real sum = 0;
    for (std::size_t h = 0; h < heads; ++h) {
      layer.push_back(naive_scores(*model.streams[s + h], rule));
      sum = std::accumulate(layer.back().begin(), layer.back().end(), sum);
    }
    for (std::size_t h = 0; h < heads; ++h) {
      for (Index j = 0; j < kMiddle; ++j) places.push_back({layer[h][j] / sum, s + h, j});
    }
  }
  std::ranges::stable_sort(places, std::ranges::greater{}, &Place::score);
  const auto all = std::min(std::ssize(places),
                            std::ssize(model.streams) * std::max<Index>(0, rule.budget - kWindow));
  Sets kept(model.streams.size());
  for (Index k = 0; k < all; ++k) kept[places[k].stream].push_back(places[k].token);
  for (std::vector<Index>& tokens : kept) {
    for (Index j = kMiddle; j < kPrompt; ++j) tokens.push_back(j);
    std::ranges::sort(tokens);
  }
  return kept;
}

const StreamSpec kSpec{.tokens = 66, .d = 5, .dv = 3, .heads_per_kv = 2};

TEST_CASE("laprox keeps what its definitions keep, over all layers") {
  for (const StreamSpec& spec :
       {kSpec, StreamSpec{.tokens = 66, .d = 4, .dv = 2, .softcap = 3.0},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .heads_per_kv = 3, .sinks = true},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true}}) {
    for (const int layers : {1, 3}) {
      const LayerOfStreams model(spec, 2, layers);
      for (const Rule& rule : {Rule{}, Rule{.budget = 7}, Rule{.budget = 50, .kernel = 7},
                               Rule{.products = true}, Rule{.kernel = 5, .products = true},
                               Rule{.norm = "wo_l1"}, Rule{.products = true, .norm = "value_l2"}}) {
        CAPTURE(layers);
        CAPTURE(rule.budget);
        CAPTURE(rule.norm);
        CHECK(model.kept("laprox", kPrompt, given(rule)) == naive(model, 2, rule));
      }
    }
  }
}

TEST_CASE("laprox: a layer of larger values gains nothing, a head of larger values does") {
  LayerOfStreams model(kSpec, 2, 2);
  const auto sizes = [&] {
    std::vector<Index> out;
    for (const auto& kept : model.kept("laprox", kPrompt, given({})))
      out.push_back(std::ssize(kept));
    return out;
  };
  const std::vector<Index> before = sizes();
  for (std::size_t s = 2; s < 4; ++s) {
    for (double& x : model.owned[s]->values) x *= 1024.0;
  }
  CHECK(sizes() == before);
  for (double& x : model.owned[3]->values) x *= 1024.0;
  CHECK(sizes()[3] > before[3]);
}

TEST_CASE("laprox names what a dump lacks; where another layer lacks queries, its cells fail") {
  StreamShape shape = make_stream(kSpec)->stream.shape;
  const auto why = [&](const std::string& norm) {
    return skip_of("laprox", shape, kPrompt, given({.norm = norm}));
  };
  CHECK(why("wo_l2").empty());
  CHECK(why("wo_l1").empty());
  shape.hidden = 0;
  shape.wo_v_l1 = false;
  CHECK(why("wo_l2").find("output projection") != std::string::npos);
  CHECK(why("wo_l1").find("wo_v_l1") != std::string::npos);
  CHECK(why("value_l2").empty());
  shape.window = 20;
  CHECK(why("wo_l2").find("sliding") != std::string::npos);
  LayerOfStreams model(kSpec, 2, 2);
  CHECK(model.failure("laprox", kPrompt, given({})).empty());
  model.owned[3]->stream.shape.first_query = kMiddle + 1;
  CHECK(!model.failure("laprox", kPrompt, given({})).empty());
}

}  // namespace laprox_test
}  // namespace kvbench::test
