#include "bench/bench_stream.hpp"

#include <cmath>
#include <map>
#include <random>
#include <tuple>

namespace kvbench::bench {
namespace {

constexpr int kCenters = 256;

std::unique_ptr<BenchStream> make(Index tokens, Index d, int heads) {
  auto out = std::make_unique<BenchStream>();
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  const auto numbers = [&](std::vector<double>& to, Index rows) {
    to.resize(rows * d);
    for (double& x : to) x = normal(random);
  };
  std::vector<double> centers;
  numbers(centers, kCenters);
  numbers(out->keys, tokens);
  numbers(out->values, tokens);
  numbers(out->queries, tokens * heads);
  std::uniform_real_distribution<double> uniform;
  for (Index j = 0; j < tokens; ++j) {
    const auto center = static_cast<Index>(kCenters * std::pow(uniform(random), 2.0));
    for (Index k = 0; k < d; ++k) {
      double& x = out->keys[j * d + k];
      x = centers[center * d + k] + 0.4 * x;
    }
  }
  Stream& stream = out->stream;
  stream.id = {"bench", 0, 0};
  stream.shape.tokens = tokens;
  stream.shape.d = stream.shape.dv = d;
  stream.shape.scale = 1.0 / std::sqrt(static_cast<double>(d));
  stream.keys = {out->keys.data(), tokens, d};
  stream.values = {out->values.data(), tokens, d};
  for (int g = 0; g < heads; ++g) {
    stream.queries.emplace_back(out->queries.data() + g * tokens * d, tokens, d);
  }
  if (heads == 1) return out;
  stream.shape.heads_per_kv = heads;
  auto rope = std::make_shared<Rope>();
  for (Index p = 0; p < d / 2; ++p) {
    rope->inv_freq.push_back(std::pow(1e5, -2.0 * static_cast<double>(p) / static_cast<double>(d)));
  }
  stream.shape.rope = rope;
  return out;
}

}  // namespace

const Stream& bench_stream(Index tokens, Index d, int heads) {
  static std::map<std::tuple<Index, Index, int>, std::unique_ptr<BenchStream>> made;
  auto& place = made[{tokens, d, heads}];
  if (!place) place = make(tokens, d, heads);
  return place->stream;
}

}  // namespace kvbench::bench
