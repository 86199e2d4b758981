// Kernels that decide: clustering, farthest-first, distance quantiles, against token-by-token
// rules.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/distance_quantile.hpp"
#include "kernels/kernels.hpp"
#include "support/naive_rules.hpp"
#include "support/naive_subgen.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace decision_kernels_test {

std::vector<StreamSpec> specs() {
  return {
      {.tokens = 1, .d = 3},
      {.tokens = 2, .d = 1},
      {.tokens = 60, .d = 3},
      {.tokens = 150, .d = 64},
      {.tokens = 300, .d = 43, .kind = StreamKind::kClustered},
      {.tokens = 597, .d = 5, .kind = StreamKind::kClustered},
      {.tokens = 40, .d = 2, .kind = StreamKind::kEqualKeys},
      {.tokens = 40, .d = 2, .kind = StreamKind::kZeroKeys},
      {.tokens = 200, .d = 4, .kind = StreamKind::kTies},
  };
}

// Squares of integers are exact, so that equal distances stay equal: compare decisions one by one.
void check_clusters(const Clustering& clustering, const NaiveSubgen& naive) {
  REQUIRE(clustering.assignment.size() == naive.assignment.size());
  REQUIRE(clustering.opened_by.size() == naive.clusters.size());
  bool same = true;
  for (std::size_t j = 0; j < naive.assignment.size(); ++j) {
    same = same && clustering.assignment[j] == naive.assignment[j];
  }
  for (std::size_t c = 0; c < naive.clusters.size(); ++c) {
    same = same && clustering.opened_by[c] == naive.clusters[c].representative;
  }
  CHECK(same);
}

TEST_CASE("clustering opens and joins as the token-by-token rule") {
  for (const StreamSpec& spec : specs()) {
    CAPTURE(spec.tokens);
    CAPTURE(spec.d);
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    for (const double delta : {0.0, 0.3, 1.0, 1.5, 2.0, 5.0, 1e9}) {
      CAPTURE(delta);
      check_clusters(cpu_kernels().cluster(stream.keys, 0, delta),
                     naive_clusters(stream, stream.shape.tokens, delta));
    }
  }
}

TEST_CASE("clustering holds where single precision cannot tell distances apart, and at any scale") {
  struct Numbers {
    double offset, size, delta;
  };
  // Distances of gaussian keys in 24 dimensions are about 7. Offset by 1e5, single precision knows
  // coordinates to 1e-2 only.
  for (const Numbers& c :
       {Numbers{0.0, 1.0, 6.0}, Numbers{1e5, 1.0, 6.0}, Numbers{0.0, 1e-100, 6e-100},
        Numbers{0.0, 1e100, 6e100}, Numbers{0.0, 1e-145, 6e-145}, Numbers{0.0, 1e145, 6e145}}) {
    CAPTURE(c.offset);
    CAPTURE(c.size);
    const auto owned = make_stream({.tokens = 900, .d = 24});
    for (std::size_t k = 0; k < owned->keys.size(); ++k) {
      // One coordinate is offset in all keys but every fifth, so that no common shift helps.
      const bool shifted = k % 24 == 3 && k / 24 % 5 != 0;
      owned->keys[k] = c.size * owned->keys[k] + (shifted ? c.offset : 0.0);
    }
    check_clusters(cpu_kernels().cluster(owned->stream.keys, 0, c.delta),
                   naive_clusters(owned->stream, 900, c.delta));
  }
}

TEST_CASE("a distance of exactly delta joins, the next double above it opens") {
  const Rows keys = {{0, 0}, {3, 4}, {-3, 4}};  // distance 5 from the first, 6 between them
  const auto owned = stream_of(keys, {{1}, {1}, {1}}, {{{0, 0}, {0, 0}, {0, 0}}});
  const ConstMatrix points = owned->stream.keys;
  CHECK(cpu_kernels().cluster(points, 0, 5.0).opened_by.size() == 1);
  CHECK(cpu_kernels().cluster(points, 0, std::nextafter(5.0, 0.0)).opened_by.size() == 3);
}

TEST_CASE("a key equally far from two representatives joins the oldest") {
  // Representatives 0 and 4; 2 is at distance 2 of both, delta 3.
  const auto owned = stream_of({{0}, {4}, {2}, {3}}, {{1}, {1}, {1}, {1}}, {{{0}, {0}, {0}, {0}}});
  const Clustering clustering = cpu_kernels().cluster(owned->stream.keys, 0, 3.0);
  CHECK(clustering.assignment == std::vector<std::int32_t>{0, 1, 0, 1});
}

TEST_CASE("clustering from a later token ignores the earlier ones") {
  const auto owned = make_stream({.tokens = 80, .d = 6, .kind = StreamKind::kClustered});
  const Clustering whole = cpu_kernels().cluster(owned->stream.keys, 0, 1.5);
  const Clustering tail = cpu_kernels().cluster(owned->stream.keys, 13, 1.5);
  const auto later = make_stream({.tokens = 67, .d = 6});
  std::copy(owned->keys.begin() + 13 * 6, owned->keys.end(), later->keys.begin());
  const Clustering alone = cpu_kernels().cluster(later->stream.keys, 0, 1.5);
  CHECK(tail.first == 13);
  CHECK(tail.assignment == alone.assignment);
  REQUIRE(tail.opened_by.size() == alone.opened_by.size());
  for (std::size_t c = 0; c < alone.opened_by.size(); ++c) {
    CHECK(tail.opened_by[c] == alone.opened_by[c] + 13);
  }
  CHECK(whole.assignment.size() == 80);
}

TEST_CASE("farthest-first chooses as the token-by-token rule, with its covering radii") {
  for (const StreamSpec& spec : specs()) {
    CAPTURE(spec.tokens);
    CAPTURE(spec.d);
    const auto owned = make_stream(spec);
    const ConstMatrix points = owned->stream.keys;
    const Index n = spec.tokens;
    struct Range {
      Index first, last, start, count;
    };
    for (const Range& r : {Range{0, n, 0, std::min<Index>(n, 20)}, Range{0, n, n - 1, n},
                           Range{n / 4, n - n / 5, n / 4, std::min<Index>(7, n - n / 5 - n / 4)}}) {
      if (r.count < 1 || r.count > 80) continue;
      const Centers centers =
          cpu_kernels().farthest_first(points, r.first, r.last, r.start, r.count);
      const std::vector<Index> naive =
          naive_farthest_first(points, r.first, r.last, r.start, r.count);
      REQUIRE(centers.tokens == naive);
      REQUIRE(centers.radius.size() == naive.size());
      for (std::size_t c = 0; c < naive.size(); ++c) {
        const double radius = naive_covering_radius(
            points, r.first, r.last,
            {naive.begin(), naive.begin() + static_cast<std::ptrdiff_t>(c) + 1});
        CHECK(std::fabs(centers.radius[c] - radius) <= 1e-13 * (1.0 + radius));
      }
      REQUIRE(centers.nearest.size() == static_cast<std::size_t>(r.last - r.first));
      for (Index j = r.first; j < r.last; ++j) {
        std::size_t nearest = 0;
        for (std::size_t c = 1; c < naive.size(); ++c) {
          if (naive_distance(points, j, naive[c]) < naive_distance(points, j, naive[nearest])) {
            nearest = c;
          }
        }
        CHECK(centers.nearest[j - r.first] == static_cast<std::int32_t>(nearest));
      }
    }
  }
}

TEST_CASE("farthest-first over many rounds, ties and all, with and without its filter") {
  for (const StreamSpec& spec : {StreamSpec{.tokens = 700, .d = 16, .kind = StreamKind::kClustered},
                                 StreamSpec{.tokens = 700, .d = 3, .kind = StreamKind::kTies}}) {
    for (const double away : {0.0, 16384.0}) {
      CAPTURE(spec.d);
      CAPTURE(away);
      const auto owned = make_stream(spec);
      // Points far from the others leave most distances in doubt.
      for (Index j = 0; j < 700; j += 3) {
        for (Index k = 0; k < spec.d; ++k) {
          owned->keys[j * spec.d + k] += away;
        }
      }
      const ConstMatrix points = owned->stream.keys;
      const Centers centers = cpu_kernels().farthest_first(points, 0, 700, 11, 100);
      CHECK(centers.tokens == naive_farthest_first(points, 0, 700, 11, 100));
      // Too large for single precision and for its filter; a power of two changes no decision.
      std::vector<double> large = owned->keys;
      for (double& x : large) x = std::ldexp(x, 490);
      const Centers unfiltered = cpu_kernels().farthest_first(
          ConstMatrix(large.data(), points.rows, points.cols), 0, 700, 11, 100);
      CHECK(unfiltered.tokens == centers.tokens);
      CHECK(unfiltered.nearest == centers.nearest);
      for (std::size_t c = 0; c < 100; ++c) {
        CHECK(unfiltered.radius[c] == std::ldexp(centers.radius[c], 490));
      }
    }
  }
}

TEST_CASE("distance quantiles are numpy's over all pairs of at most 128 rows") {
  for (const Index n : {1, 2, 3, 50, 128, 129, 600}) {
    CAPTURE(n);
    const auto owned = make_stream({.tokens = n, .d = 5});
    for (const double q : {0.0, 0.05, 0.2, 0.5, 0.99, 1.0}) {
      const double naive = naive_delta_quantile(owned->stream, q);
      CHECK(std::fabs(distance_quantile(owned->stream.keys, q) - naive) <= 1e-14 * naive);
    }
  }
}

}  // namespace decision_kernels_test
}  // namespace kvbench::test
