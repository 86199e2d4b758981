// I2: slots are i.i.d. with probability ||v||^2 / sum; I6: samples are i.i.d. uniform on their
// cluster. Each claim is one function of draws, and is shown to fail on planted bugs.
#include <doctest/doctest.h>

#include <numeric>
#include <string>

#include "statistical/false_alarm.hpp"
#include "statistical/subgen_draws.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace subgen_laws_test {

std::vector<double> slot_law(const Stream& stream) {
  std::vector<double> law;
  for (Index j = 0; j < stream.shape.tokens; ++j) law.push_back(squared_norm(stream.values, j));
  const double mu = std::accumulate(law.begin(), law.end(), 0.0);
  for (double& p : law) p /= mu;
  return law;
}

struct PValues {
  double law;
  double independence;
};

// I2 from `runs` seeds: all slots against their law; the first two slots of each run against
// Binomial(runs, sum p^2) coincidences.
PValues slots_p(const Stream& stream, const SubgenDraws& draws, std::int64_t runs) {
  const std::vector<double> law = slot_law(stream);
  std::vector<std::int64_t> counts(law.size(), 0);
  std::int64_t coincidences = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    const SubgenDraw draw = draws(first_seed() + static_cast<std::uint32_t>(run));
    for (const Index token : draw.slots) ++counts[token];
    coincidences += draw.slots[0] == draw.slots[1] ? 1 : 0;
  }
  double meeting = 0.0;
  for (const double p : law) meeting += p * p;
  return {goodness_of_fit(counts, law), binomial_two_sided(coincidences, runs, meeting)};
}

// I6, cluster by cluster.
std::vector<PValues> samples_p(const Stream& stream, double delta, const SubgenDraws& draws,
                               std::int64_t runs) {
  const NaiveSubgen clusters = naive_clusters(stream, stream.shape.tokens, delta);
  const std::size_t m = clusters.clusters.size();
  std::vector<std::vector<std::int64_t>> counts(
      m, std::vector<std::int64_t>(static_cast<std::size_t>(stream.shape.tokens), 0));
  std::vector<std::int64_t> coincidences(m, 0);
  for (std::int64_t run = 0; run < runs; ++run) {
    const SubgenDraw draw = draws(first_seed() + static_cast<std::uint32_t>(run));
    for (std::size_t c = 0; c < m; ++c) {
      for (const Index token : draw.samples[c]) ++counts[c][token];
      coincidences[c] += draw.samples[c][0] == draw.samples[c][1] ? 1 : 0;
    }
  }
  std::vector<PValues> out;
  for (std::size_t c = 0; c < m; ++c) {
    const double size = static_cast<double>(clusters.clusters[c].count);
    std::vector<double> law(stream.shape.tokens, 0.0);
    for (const Index member : clusters.clusters[c].members) {
      law[member] = 1.0 / size;
    }
    if (size < 2) continue;
    out.push_back(
        {goodness_of_fit(counts[c], law), binomial_two_sided(coincidences[c], runs, 1.0 / size)});
  }
  return out;
}

// Values of lognormal norms; keys in five balls.
std::unique_ptr<OwnedStream> law_stream(Index tokens, bool with_zero_values = false) {
  auto owned =
      make_stream({.tokens = tokens, .d = 4, .dv = 4, .kind = StreamKind::kClustered, .seed = 7});
  if (with_zero_values) {
    for (const Index j : {Index{0}, Index{5}, Index{6}, tokens - 1}) {
      std::fill_n(owned->values.begin() + j * 4, 4, 0.0);
    }
  }
  return owned;
}

constexpr std::int64_t kSlotRuns = 320;  // with 64 slots: 20480 draws
constexpr std::int64_t kSampleRuns = 320;
constexpr double kDelta = 2.0;

TEST_CASE("I2: slots follow ||v||^2, independently, at two stream times and with zero values") {
  HonestAlarm law("I2 slots follow ||v||^2");
  HonestAlarm independence("I2 slots are independent");
  for (const bool naive : {false, true}) {
    for (const auto& [tokens, zeros] :
         std::vector<std::pair<Index, bool>>{{32, false}, {21, false}, {32, true}}) {
      CAPTURE(tokens);
      CAPTURE(naive);
      const auto owned = law_stream(tokens, zeros);
      const SubgenCase c{&owned->stream, kDelta, 2, 64};
      const PValues p =
          slots_p(owned->stream, naive ? naive_draws(c) : library_draws(c), seed_count(kSlotRuns));
      law.check(p.law);
      independence.check(p.independence);
    }
  }
}

TEST_CASE("I2 turns red on wrong slot probabilities") {
  const auto owned = law_stream(32);
  const SubgenCase c{&owned->stream, kDelta, 2, 64};
  for (const SubgenBug bug : {SubgenBug::kUnsquaredNorm, SubgenBug::kMuBeforeCoin,
                              SubgenBug::kStaleMu, SubgenBug::kUniformSlots}) {
    CAPTURE(static_cast<int>(bug));
    CHECK(slots_p(owned->stream, naive_draws(c, bug), kSlotRuns).law < alarm_level());
  }
  CHECK(slots_p(owned->stream, naive_draws(c, SubgenBug::kSharedSlotCoin), kSlotRuns).independence <
        alarm_level());
}

TEST_CASE("I2 turns red on the library's own ablations, which draw by another law") {
  const auto owned = law_stream(32);
  for (const char* sampling : {"v1", "k2", "uniform"}) {
    CAPTURE(std::string(sampling));
    const SubgenCase c{&owned->stream, kDelta, 2, 64};
    CHECK(slots_p(owned->stream, library_draws(c, sampling), kSlotRuns).law < alarm_level());
  }
}

TEST_CASE("I6: samples are uniform on their cluster and independent") {
  HonestAlarm law("I6 samples are uniform on their cluster");
  HonestAlarm independence("I6 samples are independent");
  const auto owned = law_stream(100);
  const SubgenCase c{&owned->stream, kDelta, 24, 2};
  for (const bool naive : {false, true}) {
    CAPTURE(naive);
    const auto p = samples_p(owned->stream, kDelta, naive ? naive_draws(c) : library_draws(c),
                             seed_count(kSampleRuns));
    CHECK(p.size() >= 4);
    for (const PValues& cluster : p) {
      law.check(cluster.law);
      independence.check(cluster.independence);
    }
  }
}

TEST_CASE("I6 turns red on stale counts, frozen samples and shared coins") {
  const auto owned = law_stream(100);
  const SubgenCase c{&owned->stream, kDelta, 24, 2};
  for (const SubgenBug bug : {SubgenBug::kStaleCount, SubgenBug::kKeepFirstSample}) {
    CAPTURE(static_cast<int>(bug));
    for (const PValues& p : samples_p(owned->stream, kDelta, naive_draws(c, bug), kSampleRuns)) {
      CHECK(p.law < alarm_level());
    }
  }
  for (const PValues& p : samples_p(owned->stream, kDelta,
                                    naive_draws(c, SubgenBug::kSharedSampleCoin), kSampleRuns)) {
    CHECK(p.independence < alarm_level());
  }
}

}  // namespace subgen_laws_test
}  // namespace kvbench::test
