// Which of many centres can be nearest to a point: products in single precision with a rigorous
// error band. It decides nothing by itself; what it leaves in doubt, canonical distances decide.
#pragma once

#include <cstdint>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// Shift and scale that make a band narrow: points less their mean, times a power of two that takes
// all numbers into [-1, 1].
struct FilterScale {
  // Scale of rows [first, rows) of `points` [rows, d].
  FilterScale(ConstMatrix points, Index first);

  // False if numbers are so large or so small that single precision decides nothing.
  bool usable() const { return scale > 0.0; }

  std::vector<double> mean;  // [d]
  double scale = 0.0;
};

// (u of single precision) (d + 14): conversion, product and ||c||^2 / 2 cost (d + 8) u
// (||x|| + ||c||)^2 / 2 of a score <x, c> - ||c||^2 / 2 (Higham, 3.1), twice that of a squared
// distance. The rest is ample for what double precision loses, here and in a canonical distance.
inline double filter_band(Index d, double reach) {
  // The last term: what underflow may cost.
  return 0x1p-24 * static_cast<double>(d + 14) * (reach * reach + 1e-30);
}

// Points in single precision, shifted and scaled. For any number of filters.
class FilterPoints {
 public:
  // Rows [first, rows) of `points` [rows, d].
  FilterPoints(ConstMatrix points, Index first);

  bool usable() const { return scale_.usable(); }

 private:
  friend class DistanceFilter;

  Index place(Index row) const { return (row - first_) * size_; }
  double norm(Index row) const { return norms_[row - first_]; }

  Index first_;
  Index size_;  // d + 1: a row ends with 1
  FilterScale scale_;
  std::vector<float> rows_;    // none if not usable
  std::vector<double> norms_;  // norms of shifted and scaled rows
};

class DistanceFilter {
 public:
  // `points` must outlive the filter. If they are not usable, no centres may be added, and
  // answers are empty.
  explicit DistanceFilter(const FilterPoints& points) : points_(points) {}

  void add(Index row);  // a centre
  void forget();        // all centres
  Index count() const { return count_; }

  struct Answer {
    // Squared distance of the nearest centre, real or as canonical arithmetic has it: in
    // [low, high]; infinite if there is none.
    double low = 0.0;
    double high = 0.0;
    std::vector<std::int32_t> near;  // ascending; every centre that can be nearest, ties included
  };

  // One product for rows [first, last) with all centres; answers are for these.
  void ask(Index first, Index last);
  const Answer& answer(Index row);

 private:
  const FilterPoints& points_;
  Index count_ = 0;
  double longest_ = 0.0;        // largest of the centres' norms
  std::vector<float> centers_;  // column-major [d + 1, count]: a centre c ends with -||c||^2 / 2
  std::vector<float> scores_;   // [count padded, asked] <x, c> - ||c||^2 / 2
  Index asked_ = 0;             // first row of the product
  std::vector<float> step_largest_;  // largest of the scores, in steps
  Answer answer_;
};

}  // namespace kvbench
