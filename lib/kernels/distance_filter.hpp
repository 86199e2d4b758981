// Which of many centres can be nearest to a point: products in single precision with a rigorous
// error band. It decides nothing by itself; what it leaves in doubt, canonical distances decide.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

class DistanceFilter {
 public:
  // Rows [first, rows) of `points` [rows, d] will be centres and be asked about.
  DistanceFilter(ConstMatrix points, Index first);

  // False where numbers are so large or so small that single precision says nothing: then no
  // centres may be added, and answers are empty.
  bool usable() const { return scale_ > 0.0; }

  void add(Index row);  // a centre
  Index count() const { return count_; }

  struct Answer {
    // Squared distance of the nearest centre, real or as canonical arithmetic has it: in
    // [low, high]; infinite where there is none.
    double low = 0.0;
    double high = 0.0;
    std::vector<std::int32_t> near;  // ascending; every centre that can be nearest, ties included
  };

  // One product for rows [first, last) with all centres; answers are for these.
  void ask(Index first, Index last);
  const Answer& answer(Index row);

 private:
  // Row `row`, shifted and scaled, in single precision; returns its norm in double.
  double convert(Index row, float* out) const;

  ConstMatrix points_;
  std::vector<double> center_;  // [d] subtracted from all points: shorter vectors, a narrower band
  double scale_ = 0.0;          // a power of two that takes all numbers into [-1, 1]
  Index count_ = 0;
  double longest_ = 0.0;  // of the centres' norms
  // Column-major [d + 1, count] and [d + 1, asked]: a centre c ends with -||c||^2 / 2, a row
  // with 1.
  std::vector<float> centers_;
  std::vector<float> rows_;
  std::vector<float> scores_;        // [count padded, asked] <x, c> - ||c||^2 / 2
  std::vector<double> norms_;        // [asked]
  Index asked_ = 0;                  // first row of the product
  std::vector<float> step_largest_;  // of the scores, in steps
  Answer answer_;
};

}  // namespace kvbench
