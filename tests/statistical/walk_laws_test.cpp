// The self-balancing walk as SoftmaxBalance runs it, w_n = sum of eta_j u_j with <u_i, u_j> the
// kernel divided by R^2: I14 the martingale identity, I15 the exact second moment on identical unit
// vectors, I16 never worse than fair signs. Each claim is one function of draws, and is shown to
// fail on planted bugs.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "statistical/false_alarm.hpp"
#include "statistical/walk_draws.hpp"
#include "support/balance_rows.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace walk_laws_test {

// Moments of walks over fixed vectors, one entry per seed.
struct Walks {
  std::vector<double> identity;  // ||w_n||^2 - sum ||u_j||^2 + (2 / c) sum <w_(j-1), u_j>^2
  std::vector<double> squares;   // ||w_n||^2
  double fair = 0.0;             // sum ||u_j||^2
  Index fail = 0;
};

Walks walk(const WalkCase& c, const WalkDraws& draws, std::int64_t runs) {
  const WalkKernel kernel = walk_kernel(c);
  const Index n = c.stream->shape.tokens - 1;
  std::vector<std::vector<double>> gram(static_cast<std::size_t>(n));
  Walks out;
  for (Index j = 0; j < n; ++j) {
    for (Index i = 0; i <= j; ++i) {
      gram[j].push_back(static_cast<double>(kernel(i, j)));
    }
    out.fair += gram[j].back();
  }
  for (std::int64_t run = 0; run < runs; ++run) {
    const WalkDraw draw = draws(first_seed() + static_cast<std::uint32_t>(run));
    out.fail += draw.fail;
    double square = 0.0;
    double drift = 0.0;
    for (std::size_t j = 0; j < gram.size(); ++j) {
      double y = 0.0;
      for (std::size_t i = 0; i < j; ++i) y += draw.signs[i] * gram[j][i];
      square += 2.0 * draw.signs[j] * y + gram[j][j];
      drift += y * y;
    }
    out.squares.push_back(square);
    out.identity.push_back(square - out.fair + 2.0 / c.c * drift);
  }
  return out;
}

double martingale_p(const Walks& walks) { return normal_two_sided(mean_z(walks.identity, 0.0)); }

// P[a mean as large as this, or larger] if E ||w_n||^2 were sum ||u_j||^2.
double never_worse_p(const Walks& walks) { return normal_upper(mean_z(walks.squares, walks.fair)); }

double identical_p(const Walks& walks, double c, Index n) {
  const double expected = 0.5 * c * (1.0 - std::pow(1.0 - 2.0 / c, static_cast<double>(n)));
  return normal_two_sided(mean_z(walks.squares, expected));
}

// Keys and values around one direction, so that every token touches all others about as much as
// itself.
std::unique_ptr<OwnedStream> touching_stream() {
  auto owned = make_stream({.tokens = 97, .d = 4, .dv = 3, .seed = 11});
  for (double& x : owned->keys) x = 0.5 + 0.1 * x;
  for (double& x : owned->values) x = 1.0 + 0.08 * x;
  return owned;
}

std::unique_ptr<OwnedStream> identical_stream(Index tokens) {
  return stream_of(Rows(static_cast<std::size_t>(tokens), {0.6, 0.8}),
                   Rows(static_cast<std::size_t>(tokens), {0.0, 1.0}),
                   {Rows(static_cast<std::size_t>(tokens), {1.0, 0.0})});
}

constexpr std::int64_t kRuns = 4000;
constexpr double kC = 24.0;

WalkCase touching_case(const OwnedStream& owned, bool numerator) {
  return {&owned.stream, kC, largest_norm(owned.stream.keys), numerator};
}

TEST_CASE(
    "I14: the walk is the martingale that its probabilities promise; I16: never worse than fair "
    "signs") {
  HonestAlarm martingale("I14 walk martingale");
  HonestAlarm bound("I16 walk against fair signs");
  const auto owned = touching_stream();
  for (const bool numerator : {false, true}) {
    for (const bool naive : {false, true}) {
      CAPTURE(numerator);
      CAPTURE(naive);
      const WalkCase c = touching_case(*owned, numerator);
      const Walks walks = walk(c, naive ? naive_walks(c) : library_walks(c), seed_count(kRuns));
      REQUIRE(walks.fail == 0);  // the identity is that of walks within their bounds
      martingale.check(martingale_p(walks));
      bound.check(never_worse_p(walks));
      // The walk does balance here: fair signs would be far off.
      CHECK(mean_z(walks.squares, walks.fair) < -6.0);
    }
  }
}

TEST_CASE(
    "I14 turns red on a wrong sign, a lost factor 2, a stale sum, another R^2 and fair coins") {
  const auto owned = touching_stream();
  for (const bool numerator : {false, true}) {
    const WalkCase c = touching_case(*owned, numerator);
    for (const WalkBug bug : {WalkBug::kWrongSign, WalkBug::kLostFactorTwo, WalkBug::kStaleSum,
                              WalkBug::kCoinFlip, WalkBug::kUnscaledKernel}) {
      CAPTURE(numerator);
      CAPTURE(static_cast<int>(bug));
      // A sum without its last term shows least.
      const std::int64_t runs = bug == WalkBug::kStaleSum ? 12 * kRuns : kRuns;
      CHECK(martingale_p(walk(c, naive_walks(c, bug), runs)) < alarm_level());
    }
  }
}

TEST_CASE("I14 turns red on the library's own walk of another c") {
  const auto owned = touching_stream();
  const WalkCase c = touching_case(*owned, false);
  WalkCase half = c;
  half.c = 0.5 * c.c;
  CHECK(martingale_p(walk(c, library_walks(half), kRuns)) < alarm_level());
}

TEST_CASE("I16 turns red on a wrong sign") {
  const auto owned = touching_stream();
  const WalkCase c = touching_case(*owned, true);
  CHECK(never_worse_p(walk(c, naive_walks(c, WalkBug::kWrongSign), kRuns)) < alarm_level());
}

TEST_CASE("I15: on identical unit vectors E w^2 is (c / 2)(1 - (1 - 2 / c)^n)") {
  HonestAlarm alarm("I15 walk on identical unit vectors");
  struct Point {
    Index n;
    double c;
    std::int64_t runs;
  };
  const auto theory = [](Index n) { return 30.0 * std::log(static_cast<double>(n) / 0.01); };
  // Fair coins have E w^2 = n: here 256 against 12, 256 against 124, and, under the theory's own c,
  // 2048 against 183.
  for (const Point& point :
       {Point{256, 24.0, kRuns}, Point{256, theory(256), kRuns}, Point{2048, theory(2048), 400}}) {
    const auto owned = identical_stream(point.n + 1);
    for (const bool numerator : {false, true}) {
      CAPTURE(point.n);
      CAPTURE(point.c);
      CAPTURE(numerator);
      const WalkCase one{&owned->stream, point.c, 1.0, numerator};
      const Walks walks = walk(one, library_walks(one), seed_count(point.runs));
      REQUIRE(walks.fail == 0);
      CHECK(walks.fair == doctest::Approx(static_cast<double>(point.n)));
      alarm.check(identical_p(walks, point.c, point.n));
    }
  }
  const auto owned = identical_stream(65);
  const WalkCase c{&owned->stream, 4.0, 1.0, false};
  alarm.check(identical_p(walk(c, naive_walks(c), seed_count(kRuns)), c.c, 64));
}

TEST_CASE("I15 turns red on a wrong sign, a lost factor 2, a stale sum and fair coins") {
  const Index n = 64;
  const auto owned = identical_stream(n + 1);
  const WalkCase c{&owned->stream, 4.0, 1.0, false};
  for (const WalkBug bug :
       {WalkBug::kWrongSign, WalkBug::kLostFactorTwo, WalkBug::kStaleSum, WalkBug::kCoinFlip}) {
    CAPTURE(static_cast<int>(bug));
    CHECK(identical_p(walk(c, naive_walks(c, bug), kRuns), c.c, n) < alarm_level());
  }
}

}  // namespace walk_laws_test
}  // namespace kvbench::test
