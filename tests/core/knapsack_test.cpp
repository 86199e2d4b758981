// The knapsack against all combinations.
#include "numerics/knapsack.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

namespace kvbench::test {
namespace knapsack_test {

using Items = std::vector<std::vector<KnapsackChoice>>;

constexpr double kNone = std::numeric_limits<double>::infinity();

// The least sum of losses of all combinations that fit.
double tried(const Items& items, Index capacity, std::size_t item = 0) {
  if (capacity < 0) return kNone;
  if (item == items.size()) return 0.0;
  double best = kNone;
  for (const KnapsackChoice& choice : items[item]) {
    best = std::min(best, choice.loss + tried(items, capacity - choice.size, item + 1));
  }
  return best;
}

// The same of combinations that one price of sizes gives.
double priced(const Items& items, Index capacity) {
  double best = kNone;
  for (double price = 1e-6; price < 1e6; price *= 1.1) {
    Index size = 0;
    double loss = 0.0;
    for (const auto& choices : items) {
      const KnapsackChoice* least = &choices.front();
      for (const KnapsackChoice& choice : choices) {
        const auto cost = [&](const KnapsackChoice& of) {
          return of.loss + price * static_cast<double>(of.size);
        };
        if (cost(choice) < cost(*least)) least = &choice;
      }
      size += least->size;
      loss += least->loss;
    }
    if (size <= capacity) best = std::min(best, loss);
  }
  return best;
}

TEST_CASE("no combination that fits has a lower loss") {
  std::mt19937_64 rng(5);
  Index better_than_priced = 0;
  Index without = 0;
  for (int round = 0; round < 400; ++round) {
    Items items(1 + rng() % 5);
    Index largest = 0;
    for (auto& choices : items) {
      choices.resize(1 + rng() % 5);
      for (KnapsackChoice& choice : choices) {
        choice.size = static_cast<Index>(rng() % (round % 2 == 0 ? 6 : 1000));
        choice.loss = round % 3 == 0 ? static_cast<double>(rng() % 4)
                                     : std::exp(-0.01 * static_cast<double>(choice.size)) +
                                           1e-3 * static_cast<double>(rng() % 100);
        largest += choice.size;
      }
    }
    const auto capacity = static_cast<Index>(rng() % static_cast<std::uint64_t>(largest / 2 + 2));
    const double best = tried(items, capacity);
    const auto chosen = least_loss(items, capacity);
    CHECK(chosen.has_value() == (best < kNone));
    without += chosen ? 0 : 1;
    if (!chosen) continue;
    Index size = 0;
    double loss = 0.0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      size += items[i][(*chosen)[i]].size;
      loss += items[i][(*chosen)[i]].loss;
    }
    CHECK(size <= capacity);
    CHECK(loss == doctest::Approx(best).epsilon(1e-12));
    better_than_priced += priced(items, capacity) > best + 1e-9 ? 1 : 0;
  }
  CHECK(without > 10);
  CHECK(better_than_priced > 20);  // an approximation would be found out
}

TEST_CASE("worked by hand: prices alone would leave 4 bytes unused") {
  const Items items = {{{1, 10}, {5, 6}, {9, 0}}, {{1, 10}, {5, 6}, {9, 0}}};
  CHECK(least_loss(items, 18) == std::vector<std::size_t>{2, 2});
  const auto ten = least_loss(items, 13);
  REQUIRE(ten);
  CHECK((*ten == std::vector<std::size_t>{0, 2} || *ten == std::vector<std::size_t>{2, 0}));
  CHECK(least_loss(items, 14).value() != std::vector<std::size_t>{1, 1});  // 12 against 6
  CHECK(least_loss(items, 2) == std::vector<std::size_t>{0, 0});
  CHECK_FALSE(least_loss(items, 1));
  CHECK(least_loss({}, 0) == std::vector<std::size_t>{});
}

TEST_CASE("forty layers of forty choices take no combination by combination") {
  std::mt19937_64 rng(9);
  Items items(40);
  for (auto& choices : items) {
    for (Index c = 0; c < 40; ++c) {
      const auto size = static_cast<Index>(1000 + 997 * c + static_cast<Index>(rng() % 50));
      choices.push_back({size, std::exp(-1e-4 * static_cast<double>(size)) * 1e-3 *
                                   static_cast<double>(500 + rng() % 1000)});
    }
  }
  Index size = 0;
  const auto chosen = least_loss(items, 400'000);
  REQUIRE(chosen);
  for (std::size_t i = 0; i < items.size(); ++i) size += items[i][(*chosen)[i]].size;
  CHECK(size <= 400'000);
  CHECK(size > 395'000);
}

}  // namespace knapsack_test
}  // namespace kvbench::test
