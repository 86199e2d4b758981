#include "metrics/inspection.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "numerics/counter_rng.hpp"

namespace kvbench {
namespace inspection_test {

struct Tensors {
  Stream stream;
  std::vector<double> keys;
  std::vector<double> values;
  std::vector<std::vector<double>> queries;
};

// Numbers in (-1, 1), the same in every run.
std::vector<double> noise(Index count, std::uint32_t seed) {
  const CounterRng random(seed, 7, "inspection test");
  std::vector<double> out;
  for (Index i = 0; i < count; ++i) {
    out.push_back(2.0 * random.uniform(static_cast<std::uint32_t>(i)) - 1.0);
  }
  return out;
}

void connect(Tensors& t) {
  const StreamShape& s = t.stream.shape;
  t.stream.keys = ConstMatrix(t.keys.data(), s.tokens, s.d);
  t.stream.values = ConstMatrix(t.values.data(), s.tokens, s.dv);
  t.stream.queries.clear();
  for (const auto& q : t.queries) {
    t.stream.queries.emplace_back(q.data(), s.tokens - s.first_query, s.d);
  }
}

void make(Tensors& t, const StreamShape& shape, double sharpness = 1.0) {
  t.stream.shape = shape;
  t.keys = noise(shape.tokens * shape.d, 1);
  t.values = noise(shape.tokens * shape.dv, 2);
  t.queries.clear();
  for (int g = 0; g < shape.heads_per_kv; ++g) {
    t.queries.push_back(
        noise((shape.tokens - shape.first_query) * shape.d, static_cast<std::uint32_t>(10 + g)));
    for (double& x : t.queries.back()) x *= sharpness;
  }
  connect(t);
}

StreamShape awkward_shape() {
  StreamShape shape;
  shape.tokens = 173;
  shape.d = 7;
  shape.dv = 5;
  shape.heads_per_kv = 3;
  shape.first_query = 61;
  shape.scale = 0.7;
  return shape;
}

double naive_distance(ConstMatrix m, Index a, Index b) {
  double sum = 0.0;
  for (Index k = 0; k < m.cols; ++k) sum += (m(a, k) - m(b, k)) * (m(a, k) - m(b, k));
  return std::sqrt(sum);
}

// Softmax of one row over its visible tokens, token lo first, and its logits.
struct NaiveRow {
  Index lo = 0;
  std::vector<double> logits;
  std::vector<double> p;
};

NaiveRow naive_row(const Stream& stream, int g, Index i) {
  const StreamShape& s = stream.shape;
  NaiveRow out;
  out.lo = s.window > 0 ? std::max<Index>(0, i - s.window + 1) : 0;
  double largest = -std::numeric_limits<double>::infinity();
  for (Index j = out.lo; j <= i; ++j) {
    double dot = 0.0;
    for (Index k = 0; k < s.d; ++k) dot += stream.query(g, i)[k] * stream.keys(j, k);
    double x = s.scale * dot;
    if (s.softcap > 0.0) x = s.softcap * std::tanh(x / s.softcap);
    out.logits.push_back(x);
    largest = std::max(largest, x);
  }
  double sum = 0.0;
  for (const double x : out.logits) sum += std::exp(x - largest);
  for (const double x : out.logits) out.p.push_back(std::exp(x - largest) / sum);
  return out;
}

// Mean over the last `rows` rows of query head g.
double mean_over_rows(const Stream& stream, int g, Index rows,
                      const std::function<double(const NaiveRow&)>& value) {
  double sum = 0.0;
  const Index n = stream.shape.tokens;
  for (Index i = n - rows; i < n; ++i) sum += value(naive_row(stream, g, i));
  return sum / static_cast<double>(rows);
}

double naive_entropy(const NaiveRow& row) {
  double h = 0.0;
  for (const double p : row.p) h -= p > 0.0 ? p * std::log(p) : 0.0;
  return h;
}

double fraction_at_most(const std::vector<double>& p, double limit) {
  double count = 0.0;
  for (const double x : p) count += x <= limit ? 1.0 : 0.0;
  return count / static_cast<double>(p.size());
}

double naive_top_mass(std::vector<double> p, int percent) {
  std::sort(p.begin(), p.end(), std::greater<>());
  const double exact = percent * static_cast<double>(p.size()) / 100.0;
  const auto count = static_cast<std::size_t>(std::ceil(exact - 1e-9));
  double sum = 0.0;
  for (std::size_t k = 0; k < count; ++k) sum += p[k];
  return sum;
}

TEST_CASE("norms are summarised with numpy's quantiles") {
  Tensors t;
  StreamShape shape;
  shape.tokens = 5;
  shape.d = 2;
  shape.dv = 1;
  shape.scale = 0.5;
  make(t, shape);
  t.keys = {3, 4, 0, 0, 0, 1, 0, -2, 6, 8};  // norms 5, 0, 1, 2, 10
  t.queries[0] = {0, 1, 0, 1, 3, 0, 0, -7, 0, 2};
  connect(t);
  InspectionOptions options;
  options.attention_rows = 1;
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), options);
  const NormSummary& norms = got.keys.norms;
  CHECK(norms.count == 5);
  CHECK(norms.mean == doctest::Approx(3.6));
  CHECK(norms.rms == doctest::Approx(std::sqrt(130.0 / 5)));
  CHECK(norms.median() == 2.0);
  CHECK(norms.max() == 10.0);
  CHECK(norms.quantiles[0] == 0.0);
  CHECK(norms.quantiles[1] == doctest::Approx(0.04));  // 1 %: position 0.04 between 0 and 1
  CHECK(norms.quantiles[7] == doctest::Approx(8.0));   // 90 %: position 3.6 between 5 and 10
  CHECK(got.queries.max() == 7.0);
  CHECK(got.r == 3.5);
  CHECK(got.r_attention_rows == 1.0);  // only the last row's query, of norm 2
  CHECK(got.r_balancekv == 10.0);
}

TEST_CASE("norms of huge rows do not overflow") {
  Tensors t;
  make(t, awkward_shape());
  for (double& x : t.values) x *= 1e200;
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  CHECK(std::isfinite(got.values.norms.rms));
  CHECK(std::isfinite(got.values.frobenius_norm));
  REQUIRE(got.values.stable_rank.has_value());
  CHECK(std::isfinite(*got.values.stable_rank));
}

TEST_CASE("stable rank, spectral and Frobenius norm of a matrix with known singular values") {
  // H1 diag(sigma) H2 with Householder reflections H has exactly the singular values sigma.
  constexpr Index kRows = 90;
  constexpr Index kCols = 4;
  const double sigma[kCols] = {3.0, 2.0, 0.5, 0.25};
  std::vector<double> u = noise(kRows, 3);
  std::vector<double> w = noise(kCols, 4);
  const auto reflect = [](const std::vector<double>& v, std::vector<double>& x) {
    double vx = 0.0;
    double vv = 0.0;
    for (std::size_t k = 0; k < v.size(); ++k) {
      vx += v[k] * x[k];
      vv += v[k] * v[k];
    }
    for (std::size_t k = 0; k < v.size(); ++k) x[k] -= 2.0 * vx / vv * v[k];
  };
  Tensors t;
  StreamShape shape;
  shape.tokens = kRows;
  shape.d = 3;
  shape.dv = kCols;
  make(t, shape);
  t.values.assign(kRows * kCols, 0.0);
  for (Index s = 0; s < kCols; ++s) {
    std::vector<double> left(kRows, 0.0);
    std::vector<double> right(kCols, 0.0);
    left[s] = 1.0;
    right[s] = 1.0;
    reflect(u, left);
    reflect(w, right);
    for (Index i = 0; i < kRows; ++i) {
      for (Index k = 0; k < kCols; ++k) {
        t.values[i * kCols + k] += sigma[s] * left[i] * right[k];
      }
    }
  }
  connect(t);
  const PointSet values = inspect_stream(t.stream, cpu_kernels(), {}).values;
  CHECK(values.spectral_norm == doctest::Approx(3.0).epsilon(1e-12));
  CHECK(values.frobenius_norm == doctest::Approx(std::sqrt(13.3125)).epsilon(1e-12));
  REQUIRE(values.stable_rank.has_value());
  CHECK(*values.stable_rank == doctest::Approx(13.3125 / 9.0).epsilon(1e-12));
}

TEST_CASE("a zero matrix has no stable rank") {
  Tensors t;
  make(t, awkward_shape());
  std::fill(t.values.begin(), t.values.end(), 0.0);
  const PointSet values = inspect_stream(t.stream, cpu_kernels(), {}).values;
  CHECK_FALSE(values.stable_rank.has_value());
  CHECK(values.spectral_norm == 0.0);
  CHECK(values.norms.max() == 0.0);
  for (const ClusterPoint& point : values.clusters) CHECK(point.clusters == 1);
}

TEST_CASE("the m'(delta) curve is that of the token-wise rule, at every prefix") {
  Tensors t;
  make(t, awkward_shape());
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  REQUIRE(got.keys.clusters.size() == 7);
  Index largest = 0;
  for (const ClusterPoint& point : got.keys.clusters) {
    std::vector<Index> representatives;
    std::vector<Index> count_after;
    for (Index j = 0; j < t.stream.shape.tokens; ++j) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const Index x : representatives) {
        nearest = std::min(nearest, naive_distance(t.stream.keys, j, x));
      }
      if (nearest > point.delta) representatives.push_back(j);
      count_after.push_back(std::ssize(representatives));
    }
    CHECK(point.clusters == count_after.back());
    largest = std::max(largest, point.clusters);
    std::vector<Index> prefixes;
    for (const auto& [prefix, clusters] : point.growth) {
      CHECK(clusters == count_after[prefix - 1]);
      prefixes.push_back(prefix);
    }
    CHECK(prefixes == std::vector<Index>{1, 2, 4, 8, 16, 32, 64, 128, 173});
  }
  CHECK(largest > 20);  // else the curves above say nothing
}

TEST_CASE("delta is the quantile over all tokens, clusters count the first clustering_tokens") {
  Tensors t;
  make(t, awkward_shape());
  InspectionOptions options;
  options.clustering_tokens = 50;
  const StreamInspection all = inspect_stream(t.stream, cpu_kernels(), {});
  const StreamInspection part = inspect_stream(t.stream, cpu_kernels(), options);
  CHECK(all.clustering_tokens == 173);
  CHECK(part.clustering_tokens == 50);
  for (std::size_t k = 0; k < all.keys.clusters.size(); ++k) {
    CHECK(part.keys.clusters[k].delta == all.keys.clusters[k].delta);
    CHECK(part.keys.clusters[k].clusters <= 50);
  }
  for (const Index c : part.keys.centers) CHECK(c < 50);
}

TEST_CASE("covering radius and centres of keys and values agree with brute force") {
  Tensors t;
  make(t, awkward_shape());
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  for (const bool of_keys : {true, false}) {
    const PointSet& set = of_keys ? got.keys : got.values;
    const ConstMatrix points = of_keys ? t.stream.keys : t.stream.values;
    std::vector<Index> centers = {0};
    std::vector<double> radius;
    while (true) {
      Index farthest = 0;
      double covering = 0.0;
      for (Index j = 0; j < points.rows; ++j) {
        double nearest = std::numeric_limits<double>::infinity();
        for (const Index c : centers) nearest = std::min(nearest, naive_distance(points, j, c));
        if (nearest > covering) {
          covering = nearest;
          farthest = j;
        }
      }
      radius.push_back(covering);
      if (std::ssize(centers) == points.rows) break;
      centers.push_back(farthest);
    }
    REQUIRE(set.centers.size() == 64);
    for (std::size_t k = 0; k < 64; ++k) CHECK(set.centers[k] == centers[k]);
    Index last = 0;
    for (const auto& [k, covering] : set.covering_radius) {
      CHECK(k > last);
      last = k;
      CHECK(covering == doctest::Approx(radius[k - 1]).epsilon(1e-12));
    }
    CHECK(last == points.rows);
    CHECK(set.covering_radius.back().second == 0.0);
  }
}

void check_attention(const Tensors& t, Index rows) {
  InspectionOptions options;
  options.attention_rows = rows;
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), options);
  const Index n = t.stream.shape.tokens;
  const int heads_per_kv = t.stream.shape.heads_per_kv;
  REQUIRE(got.attention.has_value());
  REQUIRE(got.attention_heads.size() == static_cast<std::size_t>(heads_per_kv));
  CHECK(got.attention_rows == rows);
  CHECK(got.attention_first_row == n - rows);
  double entropy_of_group = 0.0;
  double largest_of_group = -1e300;
  for (int g = 0; g < heads_per_kv; ++g) {
    const AttentionSummary& head = got.attention_heads[g];
    const auto mean = [&](const auto& value) { return mean_over_rows(t.stream, g, rows, value); };
    const double entropy = mean(naive_entropy);
    CHECK(head.entropy_nats == doctest::Approx(entropy).epsilon(1e-12));
    entropy_of_group += entropy / heads_per_kv;

    double largest = -1e300;
    std::vector<double> scores(n, 0.0);
    for (Index i = n - rows; i < n; ++i) {
      const NaiveRow row = naive_row(t.stream, g, i);
      largest = std::max(largest, *std::max_element(row.logits.begin(), row.logits.end()));
      for (std::size_t k = 0; k < row.p.size(); ++k) {
        scores[k + static_cast<std::size_t>(row.lo)] += row.p[k];
      }
    }
    CHECK(head.largest_logit == doctest::Approx(largest).epsilon(1e-12));
    largest_of_group = std::max(largest_of_group, largest);

    const double zero =
        mean([](const NaiveRow& row) { return fraction_at_most(row.p, std::ldexp(1.0, -25)); });
    CHECK(head.zero_in_fp16 == doctest::Approx(zero).epsilon(1e-12));
    for (const SparsityPoint& point : head.absolute) {
      CHECK(point.fraction == doctest::Approx(mean([&](const NaiveRow& row) {
              return fraction_at_most(row.p, point.threshold);
            })));
    }
    for (const SparsityPoint& point : head.relative) {
      CHECK(point.fraction == doctest::Approx(mean([&](const NaiveRow& row) {
              return fraction_at_most(
                  row.p, point.threshold * *std::max_element(row.p.begin(), row.p.end()));
            })));
    }
    for (std::size_t level = 0; level < head.top_mass.size(); ++level) {
      const int percent = AttentionSummary::kTopPercent[level];
      CHECK(head.top_mass[level] == doctest::Approx(mean([&](const NaiveRow& row) {
                                      return naive_top_mass(row.p, percent);
                                    })).epsilon(1e-12));
      CHECK(head.top_mass_accumulated[level] ==
            doctest::Approx(mean([&](const NaiveRow& row) {
              // The row's tokens by descending score, then the mass of the leading ones.
              std::vector<std::size_t> order;
              for (std::size_t k = 0; k < row.p.size(); ++k) order.push_back(k);
              std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
                const auto lo = static_cast<std::size_t>(row.lo);
                return scores[a + lo] > scores[b + lo];
              });
              const double exact = percent * static_cast<double>(row.p.size()) / 100.0;
              const auto count = static_cast<std::size_t>(std::ceil(exact - 1e-9));
              double sum = 0.0;
              for (std::size_t k = 0; k < count; ++k) sum += row.p[order[k]];
              return sum;
            })).epsilon(1e-12));
    }
  }
  CHECK(got.attention->entropy_nats == doctest::Approx(entropy_of_group).epsilon(1e-12));
  CHECK(got.attention->largest_logit == doctest::Approx(largest_of_group).epsilon(1e-12));
}

TEST_CASE("attention statistics agree with a naive softmax") {
  Tensors t;
  StreamShape shape = awkward_shape();
  SUBCASE("diffuse") { make(t, shape); }
  SUBCASE("sharp") { make(t, shape, 30.0); }
  SUBCASE("sliding window") {
    shape.window = 40;
    make(t, shape, 8.0);
  }
  SUBCASE("soft-cap") {
    shape.softcap = 3.0;
    make(t, shape, 8.0);
  }
  check_attention(t, 33);
}

TEST_CASE("at most the stored query rows are looked at") {
  Tensors t;
  make(t, awkward_shape());
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  CHECK(got.attention_rows == 112);
  CHECK(got.attention_first_row == 61);
  CHECK(got.queries.count == 3 * 112);
}

TEST_CASE("a stream of one token") {
  Tensors t;
  StreamShape shape;
  shape.tokens = 1;
  shape.d = 3;
  shape.dv = 2;
  make(t, shape);
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  for (const ClusterPoint& point : got.keys.clusters) {
    CHECK(point.delta == 0.0);
    CHECK(point.clusters == 1);
    CHECK(point.growth == std::vector<std::pair<Index, Index>>{{1, 1}});
  }
  CHECK(got.keys.covering_radius == std::vector<std::pair<Index, double>>{{1, 0.0}});
  REQUIRE(got.values.stable_rank.has_value());
  CHECK(*got.values.stable_rank == doctest::Approx(1.0));
  REQUIRE(got.attention.has_value());
  CHECK(got.attention->entropy_nats == 0.0);
  CHECK(got.attention->top_mass[0] == 1.0);
}

TEST_CASE("no stored query, no attention") {
  Tensors t;
  StreamShape shape = awkward_shape();
  shape.first_query = shape.tokens;
  make(t, shape);
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  CHECK_FALSE(got.attention.has_value());
  CHECK_FALSE(got.attention_overflow);
  CHECK(got.queries.count == 0);
}

TEST_CASE("logits that overflow leave everything but the attention") {
  Tensors t;
  make(t, awkward_shape(), 1e200);
  for (double& x : t.keys) x *= 1e150;
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), {});
  CHECK_FALSE(got.attention.has_value());
  CHECK(got.attention_overflow);
  CHECK(got.values.stable_rank.has_value());
}

TEST_CASE("zero keys attend uniformly: entropy ln(n), mass ceil(x n / 100) / n") {
  Tensors t;
  StreamShape shape;
  shape.tokens = 150;
  shape.d = 4;
  shape.dv = 2;
  make(t, shape);
  std::fill(t.keys.begin(), t.keys.end(), 0.0);
  connect(t);
  InspectionOptions options;
  options.attention_rows = 1;
  const StreamInspection got = inspect_stream(t.stream, cpu_kernels(), options);
  REQUIRE(got.attention.has_value());
  CHECK(got.attention->entropy_nats == doctest::Approx(std::log(150.0)).epsilon(1e-14));
  CHECK(got.attention->largest_logit == 0.0);
  CHECK(got.attention->top_mass[0] == doctest::Approx(2.0 / 150));  // ceil(1.5) tokens
  CHECK(got.attention->top_mass[2] == doctest::Approx(8.0 / 150));  // ceil(7.5)
  CHECK(got.attention->top_mass[3] == doctest::Approx(15.0 / 150));
  CHECK(got.attention->top_mass_accumulated[11] == doctest::Approx(135.0 / 150));
  CHECK(got.attention->zero_in_fp16 == 0.0);
  CHECK(got.attention->relative[2].fraction == 0.0);
}

TEST_CASE("one token of logit ln(1000) among 100: sparsity and mass by hand") {
  Tensors t;
  StreamShape shape;
  shape.tokens = 100;
  shape.d = 1;
  shape.dv = 1;
  make(t, shape);
  std::fill(t.keys.begin(), t.keys.end(), 0.0);
  t.keys[42] = std::log(1000.0);
  std::fill(t.queries[0].begin(), t.queries[0].end(), 1.0);
  connect(t);
  InspectionOptions options;
  options.attention_rows = 1;
  const AttentionSummary got = *inspect_stream(t.stream, cpu_kernels(), options).attention;
  // p = 1000/1099 for one token, 1/1099 (about 9.1e-4) for 99.
  CHECK(got.top_mass[0] == doctest::Approx(1000.0 / 1099));
  CHECK(got.top_mass[1] == doctest::Approx(1001.0 / 1099));
  CHECK(got.absolute[2].fraction == 0.0);                    // p <= 1e-4
  CHECK(got.absolute[3].fraction == doctest::Approx(0.99));  // p <= 1e-3
  CHECK(got.relative[1].fraction == doctest::Approx(0.99));  // p <= 1 % of the largest
  CHECK(got.zero_in_fp16 == 0.0);
  CHECK(got.largest_logit == doctest::Approx(std::log(1000.0)));
}

}  // namespace inspection_test
}  // namespace kvbench
