// Weights by token that follow a sketch's changes have the bits of weights that are summed from
// scratch.
#include "sketch/weights_by_token.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace kvbench::test {
namespace weights_by_token_test {

constexpr Index kTokens = 61;  // no whole number of groups

SketchRow random_row(std::mt19937& draw) {
  std::uniform_real_distribution<double> weight(-1.0, 2.0);
  SketchRow row;
  row.token = static_cast<std::int32_t>(draw() % (kTokens + 5)) - 5;
  if (row.token < 0) row.token = -1;
  row.w_num = draw() % 3 == 0 ? 0.0 : weight(draw);
  row.w_den = draw() % 3 == 0 ? 0.0 : weight(draw);
  row.keeps_value = draw() % 2 == 0;
  row.scaled = draw() % 2 == 0;
  row.head = static_cast<std::int16_t>(static_cast<int>(draw() % 3) - 1);
  return row;
}

void change(Sketch& sketch, std::mt19937& draw) {
  const auto position = static_cast<Index>(draw() % static_cast<std::uint32_t>(sketch.size()));
  switch (draw() % 12) {
    case 0:
      sketch.erase(position);
      sketch.add(random_row(draw));
      break;
    case 1:
    case 2:
      sketch.add(random_row(draw));
      break;
    case 3:
      sketch.numerator_scale = 0.1 * static_cast<double>(draw() % 100);
      break;
    case 4:
    case 5:
    case 6:
      sketch.set_weights(position, 0.3, 0.7 * static_cast<double>(draw() % 3));
      break;
    default:
      sketch.replace(position, random_row(draw));
      break;
  }
}

void check_equal(const WeightsByToken& a, const WeightsByToken& b) {
  CHECK(a.factor() == b.factor());
  for (Index j = 0; j < (kTokens + 7) / 8 * 8; ++j) {
    CHECK(a.den()[j] == b.den()[j]);
    CHECK(a.num()[j] == b.num()[j]);
    CHECK(a.log()[j] == b.log()[j]);
    CHECK(a.kept()[j] == b.kept()[j]);
  }
  CHECK(a.weighted() == b.weighted());
  REQUIRE(a.own_rows().size() == b.own_rows().size());
  for (std::size_t m = 0; m < a.own_rows().size(); ++m) {
    CHECK(a.own_rows()[m].token == b.own_rows()[m].token);
    CHECK(a.own_rows()[m].w_num == b.own_rows()[m].w_num);
  }
}

// Every group that has a weight must be listed; others that had one before may be.
void check_groups(const WeightsByToken& weights) {
  const std::vector<std::int32_t>& groups = weights.groups();
  for (std::int32_t j = 0; j < kTokens; ++j) {
    if (weights.den()[j] == 0.0 && weights.num()[j] == 0.0 && weights.kept()[j] == 0.0) continue;
    CHECK(std::find(groups.begin(), groups.end(), j / 8) != groups.end());
  }
  CHECK(std::is_sorted(groups.begin(), groups.end()));
}

// A list that is updated where it can be.
class FollowingList {
 public:
  void follow(const WeightsByToken& weights) {
    if (weights.version() == version_) return;
    const std::vector<WeightEntry> before = list_;
    const bool is_next = version_ != 0 && weights.version() == version_ + 1;
    version_ = weights.version();
    if (!is_next || !weights.can_update()) {
      weights.list(list_);
      return;
    }
    ++updates_;
    const WeightsByToken::Common common = weights.update(list_);
    REQUIRE(common.dropped + common.same <= std::ssize(before));
    REQUIRE(common.same <= std::ssize(list_));
    CHECK(std::equal(list_.begin(), list_.begin() + common.same, before.begin() + common.dropped));
  }
  const std::vector<WeightEntry>& list() const { return list_; }
  int updates() const { return updates_; }

 private:
  std::vector<WeightEntry> list_;
  std::uint64_t version_ = 0;
  int updates_ = 0;
};

TEST_CASE("weights that follow the changes of a sketch are those summed from scratch, bit by bit") {
  std::mt19937 draw(7);
  Sketch sketch;
  for (int i = 0; i < 40; ++i) sketch.add(random_row(draw));
  WeightsByToken following(kTokens);
  FollowingList listed;
  for (int step = 0; step < 600; ++step) {
    const int changes = static_cast<int>(draw() % 5);
    for (int c = 0; c < changes; ++c) change(sketch, draw);
    if (step % 97 == 96) {  // a row whose value is no token's own comes, and goes
      SketchRow row = random_row(draw);
      row.token = 3;
      row.own_value = 0;
      row.own_key = step % 2 == 0 ? 0 : -1;
      sketch.replace(0, row);
    }
    following.take(sketch);
    WeightsByToken anew(kTokens);
    anew.take(sketch);
    check_equal(following, anew);
    check_groups(following);
    listed.follow(following);
    std::vector<WeightEntry> list;
    anew.list(list);
    CHECK((listed.list() == list));
  }
  CHECK(listed.updates() > 100);
}

TEST_CASE(
    "weights that follow a sketch with a scale of all of them are those summed from scratch") {
  std::mt19937 draw(11);
  Sketch sketch;
  const auto scaled_row = [&] {
    SketchRow row = random_row(draw);
    row.scaled = true;
    return row;
  };
  for (int i = 0; i < 40; ++i) sketch.add(scaled_row());
  WeightsByToken following(kTokens);
  FollowingList listed;
  int factored = 0;
  int plain = 0;
  for (int step = 0; step < 600; ++step) {
    const auto position = static_cast<Index>(draw() % 40);
    if (draw() % 2 == 0) sketch.numerator_scale = 0.25 * static_cast<double>(1 + draw() % 100);
    if (draw() % 3 == 0) sketch.replace(position, scaled_row());
    // For ten steps of thirty a row stands there whose weight has no scale.
    if (step % 30 == 0) sketch.replace(0, SketchRow::exact(7));
    if (step % 30 == 10) sketch.replace(0, scaled_row());
    following.take(sketch);
    WeightsByToken anew(kTokens);
    anew.take(sketch);
    check_equal(following, anew);
    listed.follow(following);
    std::vector<WeightEntry> list;
    anew.list(list);
    CHECK((listed.list() == list));
    (following.factor() == sketch.numerator_scale ? factored : plain) += 1;
  }
  CHECK(factored > 300);
  CHECK(plain > 150);
  CHECK(listed.updates() > 100);
}

TEST_CASE("a scale of all numerator weights is a factor, and changes no weight") {
  Sketch sketch;
  SketchRow slot;
  slot.token = 5;
  slot.w_num = 0.25;
  slot.scaled = true;
  sketch.numerator_scale = 3.0;
  for (int i = 0; i < 3; ++i) sketch.add(slot);
  WeightsByToken weights(kTokens);
  weights.take(sketch);
  CHECK(weights.factor() == 3.0);
  CHECK(weights.num()[5] == 0.75);
  const std::uint64_t version = weights.version();
  sketch.numerator_scale = 7.0;
  weights.take(sketch);
  CHECK(weights.factor() == 7.0);
  CHECK(weights.num()[5] == 0.75);
  CHECK(weights.version() == version);
  sketch.add(SketchRow::exact(5));  // no part of the scale
  weights.take(sketch);
  CHECK(weights.factor() == 1.0);
  CHECK(weights.num()[5] == 6.25);
  sketch.erase(3);
  weights.take(sketch);
  CHECK(weights.factor() == 7.0);
  CHECK(weights.num()[5] == 0.75);
}

TEST_CASE("a copy of a sketch that goes its own way is not taken for the first") {
  Sketch first;
  first.add_exact(0, 20);
  WeightsByToken weights(kTokens);
  weights.take(first);
  weights.take(first);
  Sketch second = first;
  second.set_weights(4, 5.0, 5.0);
  first.set_weights(6, 9.0, 9.0);
  weights.take(second);
  CHECK(weights.den()[4] == 5.0);
  CHECK(weights.den()[6] == 1.0);
  weights.take(first);
  CHECK(weights.den()[4] == 1.0);
  CHECK(weights.den()[6] == 9.0);
  second = first;
  second.set_weights(7, 3.0, 3.0);
  weights.take(second);
  CHECK(weights.den()[6] == 9.0);
  CHECK(weights.den()[7] == 3.0);
}

}  // namespace weights_by_token_test
}  // namespace kvbench::test
