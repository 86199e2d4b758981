#include "bench/bench_stream.hpp"

#include <cmath>
#include <map>
#include <random>

namespace kvbench::bench {
namespace {

constexpr int kCenters = 256;

std::unique_ptr<BenchStream> make(Index tokens, Index d) {
  auto out = std::make_unique<BenchStream>();
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  const auto numbers = [&](std::vector<double>& to, Index rows) {
    to.resize(static_cast<std::size_t>(rows * d));
    for (double& x : to) x = normal(random);
  };
  std::vector<double> centers;
  numbers(centers, kCenters);
  numbers(out->keys, tokens);
  numbers(out->values, tokens);
  numbers(out->queries, tokens);
  std::uniform_real_distribution<double> uniform;
  for (Index j = 0; j < tokens; ++j) {
    const auto center = static_cast<Index>(kCenters * std::pow(uniform(random), 2.0));
    for (Index k = 0; k < d; ++k) {
      double& x = out->keys[static_cast<std::size_t>(j * d + k)];
      x = centers[static_cast<std::size_t>(center * d + k)] + 0.4 * x;
    }
  }
  Stream& stream = out->stream;
  stream.id = {"bench", 0, 0};
  stream.shape.tokens = tokens;
  stream.shape.d = stream.shape.dv = d;
  stream.shape.scale = 1.0 / std::sqrt(static_cast<double>(d));
  stream.keys = {out->keys.data(), tokens, d};
  stream.values = {out->values.data(), tokens, d};
  stream.queries = {{out->queries.data(), tokens, d}};
  return out;
}

}  // namespace

const Stream& bench_stream(Index tokens, Index d) {
  static std::map<std::pair<Index, Index>, std::unique_ptr<BenchStream>> made;
  auto& place = made[{tokens, d}];
  if (!place) place = make(tokens, d);
  return place->stream;
}

}  // namespace kvbench::bench
