// performer: features and their sums against the definition in long double, what is exact, and the
// stream.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace performer_test {

Given given(Index features, Index sinks, Index recent, bool streaming = false,
            const char* draw = "orthogonal") {
  return {{"features", count_of(features)},
          {"sinks", count_of(sinks)},
          {"recent", count_of(recent)},
          {"streaming", Value{streaming}},
          {"draw", word_of(draw)}};
}

struct Feature {
  Real log_weight;  // ln of weight times e^shift: ln(t_r / m)
  std::vector<Real> value;
};

std::vector<Feature> features_of(const Sketch& sketch) {
  std::vector<Feature> out;
  for (const SketchRow& row : sketch.rows()) {
    if (!row.feature) continue;
    const std::vector<double>& value = sketch.own_values[row.own_value];
    out.push_back({std::log(static_cast<Real>(row.w_den)) + static_cast<Real>(sketch.feature_shift),
                   {value.begin(), value.end()}});
    CHECK(row.w_num == row.w_den);
    CHECK(!row.keeps_key);
    CHECK(!row.counts_as_token);
    CHECK(row.weight_numbers == 1);
  }
  return out;
}

// The same of tokens [first, last) by the definition, for the sketch's own random keys.
std::vector<Feature> naive_features(const Stream& stream, const Sketch& sketch, Index first,
                                    Index last) {
  std::vector<Feature> out;
  const Real s = stream.shape.scale;
  const auto count = static_cast<Real>(sketch.own_keys.size());
  for (const auto& w : sketch.own_keys) {
    Real t = 0;
    std::vector<Real> sum(stream.shape.dv, 0);
    for (Index j = first; j < last; ++j) {
      Real product = 0;
      Real square = 0;
      for (std::size_t k = 0; k < w.size(); ++k) {
        const Real x = stream.keys.row(j)[k];
        product += x * static_cast<Real>(w[k]);
        square += x * x;
      }
      const Real phi = std::exp(s * (product - square / 2));
      t += phi;
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += phi * stream.values.row(j)[k];
    }
    for (Real& x : sum) x /= t;
    out.push_back({std::log(t / count), sum});
  }
  return out;
}

void check_same(const std::vector<Feature>& a, const std::vector<Feature>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    CHECK(std::fabs(a[r].log_weight - b[r].log_weight) < 1e-11L);
    for (std::size_t k = 0; k < a[r].value.size(); ++k) {
      CHECK(std::fabs(a[r].value[k] - b[r].value[k]) < 1e-11L);
    }
  }
}

TEST_CASE(
    "features hold the sums of their definition over the middle, whatever the scale of keys") {
  for (const char* draw : {"orthogonal", "iid"}) {
    for (const StreamKind kind : {StreamKind::kGaussian, StreamKind::kClustered}) {
      const auto owned = make_stream({.tokens = 40, .d = 5, .dv = 3, .kind = kind});
      const Sketch sketch =
          sketches_of("performer", owned->stream, 30, given(12, 2, 4, false, draw)).front();
      check_same(features_of(sketch), naive_features(owned->stream, sketch, 2, 26));
      std::vector<Index> exact;
      for (const SketchRow& row : sketch.rows()) {
        if (!row.feature) exact.push_back(row.token);
      }
      CHECK(exact == std::vector<Index>{0, 1, 26, 27, 28, 29, 30});
      // 12 sums of weights and of values, and one exponent.
      const KeptCounts kept = sketch.kept_counts();
      CHECK(kept.tokens == 7);
      CHECK(kept.keys == 7);
      CHECK(kept.values == 7 + 12);
      CHECK(kept.bookkeeping == 12 + 1);
    }
  }
}

TEST_CASE("blocks of d features are orthogonal, independent ones are not") {
  const auto owned = make_stream({.tokens = 12, .d = 6, .dv = 2});
  const auto largest_overlap = [&](const char* draw) {
    const Sketch sketch =
        sketches_of("performer", owned->stream, 10, given(15, 1, 2, false, draw)).front();
    REQUIRE(sketch.own_keys.size() == 15);
    double largest = 0.0;
    for (std::size_t a = 0; a < 15; ++a) {
      for (std::size_t b = a + 1; b < 15 && b / 6 == a / 6; ++b) {
        double dot = 0.0;
        for (std::size_t k = 0; k < 6; ++k) dot += sketch.own_keys[a][k] * sketch.own_keys[b][k];
        largest = std::max(largest, std::abs(dot));
      }
    }
    return largest;
  };
  CHECK(largest_overlap("orthogonal") < 1e-13);
  CHECK(largest_overlap("iid") > 1.0);
}

TEST_CASE("answers are the formula's, soft-capped tokens beside features included") {
  for (const double softcap : {0.0, 3.0}) {
    const auto owned =
        make_stream({.tokens = 40, .d = 5, .dv = 3, .heads_per_kv = 2, .softcap = softcap});
    const auto all = sketches_of("performer", owned->stream, 30, given(9, 2, 4));
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (int g = 0; g < 2; ++g) {
        const Index row = 30 + static_cast<Index>(r);
        const Answer ours = library_answer(owned->stream, g, row, all[r]);
        const NaiveAnswer naive = naive_answer(owned->stream, g, row, all[r]);
        for (std::size_t k = 0; k < 3; ++k) {
          CHECK(ours.answer[k] == doctest::Approx(static_cast<double>(naive.z[k])).epsilon(1e-12));
        }
      }
    }
  }
}

TEST_CASE("projections are shared bytes beside memory, once they are drawn") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2});
  const AlgorithmDescription& algorithm = algorithm_named("performer");
  for (const char* draw : {"orthogonal", "iid"}) {
    const MemoryReport memory =
        replay_one(owned->stream, 20, algorithm, params_for(algorithm, given(7, 2, 3, false, draw)))
            .memory;
    CHECK(memory.shared_bytes == 7 * 4 * 2);  // features, d, 2 bytes
    // 5 exact tokens of the prompt and 10 decoded ones; values and weights of 7 features, and c.
    CHECK(memory.bytes == (5 + 10) * 6 * 2 + 7 * 2 * 2 + (7 + 1) * 4);
  }
}

TEST_CASE("one absorbed token and no exact one: the answer is its value, whatever the features") {
  const auto owned = make_stream({.tokens = 3, .d = 4, .dv = 2});
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    const Sketch sketch =
        sketches_of("performer", owned->stream, 0, given(3, 0, 0, true), seed).front();
    const Answer answer = library_answer(owned->stream, 0, 0, sketch);
    for (std::size_t k = 0; k < 2; ++k) {
      CHECK(answer.answer[k] ==
            doctest::Approx(owned->stream.values(0, static_cast<Index>(k))).epsilon(1e-14));
    }
  }
}

TEST_CASE("streaming absorbs what leaves the recent tokens, as if it had been prompt") {
  const auto owned = make_stream({.tokens = 40, .d = 5, .dv = 3});
  for (const Index prompt : {0, 3, 20}) {
    const auto all = sketches_of("performer", owned->stream, prompt, given(7, 2, 4, true));
    for (std::size_t r = 0; r < all.size(); ++r) {
      const Index row = prompt + static_cast<Index>(r);
      const Index absorbed_to = row + 1 - 4;
      if (absorbed_to <= 2) {
        CHECK(features_of(all[r]).empty());
        continue;
      }
      REQUIRE(features_of(all[r]).size() == 7);
      check_same(features_of(all[r]), naive_features(owned->stream, all[r], 2, absorbed_to));
      std::vector<Index> exact;
      for (const SketchRow& kept : all[r].rows()) {
        if (!kept.feature) exact.push_back(kept.token);
      }
      CHECK(exact == std::vector<Index>{0, 1, row - 3, row - 2, row - 1, row});
    }
  }
  // Without it decode tokens stay.
  const auto once = sketches_of("performer", owned->stream, 20, given(7, 2, 4));
  CHECK(once.back().kept_counts().tokens == 2 + 4 + 20);
  check_same(features_of(once.back()), features_of(once.front()));
}

TEST_CASE("features of keys beyond the range of exp stay finite") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2, .kind = StreamKind::kHugeLogits});
  const Sketch sketch = sketches_of("performer", owned->stream, 25, given(16, 1, 2)).front();
  CHECK(features_of(sketch).size() == 16);
  double largest = 0.0;
  for (const SketchRow& row : sketch.rows()) {
    CHECK(std::isfinite(row.w_den));
    if (row.feature) {
      largest = std::max(largest, row.w_den);
      for (const double x : sketch.own_values[row.own_value]) {
        CHECK(std::isfinite(x));
      }
    }
  }
  CHECK(largest > 0.0);
}

TEST_CASE("a layer with a sliding window is skipped, and features cannot go into a cache file") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  CHECK(skip_of("performer", shape, 40, given(8, 2, 4)).empty());
  shape.window = 20;
  CHECK(!skip_of("performer", shape, 40, given(8, 2, 4)).empty());
  const AlgorithmDescription& algorithm = algorithm_named("performer");
  CHECK(algorithm.not_rows(params_for(algorithm, given(8, 2, 4))));
}

}  // namespace performer_test
}  // namespace kvbench::test
