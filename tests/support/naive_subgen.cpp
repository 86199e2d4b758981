#include "support/naive_subgen.hpp"

#include <cmath>
#include <limits>
#include <random>

#include "support/naive_rules.hpp"

namespace kvbench::test {

double squared_norm(ConstMatrix matrix, Index row) {
  double sum = 0.0;
  for (Index k = 0; k < matrix.cols; ++k) sum += matrix(row, k) * matrix(row, k);
  return sum;
}

NaiveSubgen naive_clusters(const Stream& stream, Index tokens, double delta) {
  return naive_subgen(stream, tokens, delta, 0, 0, 0);
}

NaiveSubgen naive_subgen(const Stream& stream, Index tokens, double delta, Index t, Index s,
                         std::uint64_t seed, SubgenBug bug) {
  std::mt19937_64 rng(seed * 0x9e3779b97f4a7c15ULL + 17);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  NaiveSubgen state;
  state.slots.assign(s, -1);

  for (Index j = 0; j < tokens; ++j) {
    std::size_t nearest = state.clusters.size();
    double nearest_distance = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < state.clusters.size(); ++c) {
      const double distance = naive_distance(stream.keys, j, state.clusters[c].representative);
      if (distance < nearest_distance) {
        nearest_distance = distance;
        nearest = c;
      }
    }
    if (nearest == state.clusters.size() || nearest_distance > delta) {
      nearest = state.clusters.size();
      state.clusters.push_back({j, 1, std::vector<Index>(static_cast<std::size_t>(t), j), {j}});
    } else {
      NaiveSubgen::Cluster& cluster = state.clusters[nearest];
      const double before = static_cast<double>(cluster.count);
      cluster.count += 1;
      cluster.members.push_back(j);
      const double p = bug == SubgenBug::kStaleCount ? 1.0 / before
                       : bug == SubgenBug::kKeepFirstSample
                           ? 0.0
                           : 1.0 / static_cast<double>(cluster.count);
      const double shared = uniform(rng);
      for (Index& sample : cluster.samples) {
        const double u = bug == SubgenBug::kSharedSampleCoin ? shared : uniform(rng);
        if (u < p) sample = j;
      }
    }
    state.assignment.push_back(static_cast<Index>(nearest));

    double w = squared_norm(stream.values, j);
    if (bug == SubgenBug::kUnsquaredNorm || bug == SubgenBug::kRootWeights) w = std::sqrt(w);
    if (bug == SubgenBug::kUniformSlots) w = 1.0;
    double p = state.mu + w > 0.0 ? w / (state.mu + w) : 0.0;
    if (bug == SubgenBug::kMuBeforeCoin && state.mu > 0.0) p = w / (state.mu + 2.0 * w);
    if (bug == SubgenBug::kStaleMu && state.mu > 0.0) p = std::fmin(1.0, w / state.mu);
    const double shared = uniform(rng);
    for (Index& slot : state.slots) {
      const double u = bug == SubgenBug::kSharedSlotCoin ? shared : uniform(rng);
      if (u < p) slot = j;
    }
    state.mu += w;
  }
  return state;
}

Sketch naive_subgen_sketch(const Stream& stream, const NaiveSubgen& state, SubgenBug bug) {
  Sketch sketch;
  const double s = static_cast<double>(state.slots.size());
  double mu = 0.0;
  for (std::size_t j = 0; j < state.assignment.size(); ++j) {
    mu += squared_norm(stream.values, static_cast<Index>(j));
  }
  for (const Index token : state.slots) {
    if (token < 0) continue;
    const double w = squared_norm(stream.values, token);
    double weight = mu / (s * w);
    if (bug == SubgenBug::kHalfNumerator) weight *= 0.5;
    if (bug == SubgenBug::kRootWeights) weight = state.mu / (s * w);
    SketchRow row;
    row.token = static_cast<std::int32_t>(token);
    row.w_num = weight;
    sketch.add(row);
  }
  for (const NaiveSubgen::Cluster& cluster : state.clusters) {
    double count = static_cast<double>(cluster.count);
    if (bug == SubgenBug::kNormalizerByCount) count -= 1.0;
    for (const Index token : cluster.samples) {
      SketchRow row;
      row.token = static_cast<std::int32_t>(token);
      row.w_den = count / static_cast<double>(cluster.samples.size());
      row.keeps_value = false;
      sketch.add(row);
    }
  }
  return sketch;
}

}  // namespace kvbench::test
