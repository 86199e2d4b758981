// The pieces of work that cells of one KV head share, counted without looking at every seed.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// (amount, how many have it)
using Amounts = std::vector<std::pair<double, double>>;
// The sum of the `count` largest.
double sum_of_largest(Amounts amounts, double count);

class SharedPieces {
 public:
  // Adds the pieces of `count` cells of the group from `cell` on, of one setting on one KV head:
  // they differ in their seeds. A piece that is the same for two seeds counts once, any other once
  // for each seed.
  void add(const Plan& plan, const WorkGroup& group, const PlannedCell& cell, std::size_t count);

  // No less than there are; more only where --only leaves settings with different seeds.
  double count() const;
  // Bytes of their results, with what is kept of every token: sums of every query head, and two
  // numbers more. Decisions for a layer or the model are not among them.
  double bytes() const;
  // Bytes that computing so many at the same time takes besides, at most.
  double scratch(double at_once) const;

 private:
  struct Piece {
    double bytes = 0.0;
    double scratch = 0.0;
    double times = 0.0;
  };

  std::map<WorkKey, Piece> pieces_;
};

}  // namespace kvbench
