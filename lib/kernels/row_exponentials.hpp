// The exponentials of one row's logits under their maximum: canonical, eight at a time.
#pragma once

#include <algorithm>

#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"

namespace kvbench {

// e[j] = exp(x[j] - m) for j in [lo, hi), not empty; returns m, the largest of these x and `least`.
inline double exponentiate(const double* x, double* e, Index lo, Index hi, double least) {
  Lanes largest = Lanes::all(x[lo]);
  Index j = lo;
  for (; j + Lanes::kCount <= hi; j += Lanes::kCount) {
    largest = Lanes::max(largest, Lanes::load(x + j));
  }
  double m = std::max(largest.largest(), least);
  for (; j < hi; ++j) m = std::max(m, x[j]);
  for (j = lo; j + Lanes::kCount <= hi; j += Lanes::kCount) {
    canonical_exp(Lanes::load(x + j) - Lanes::all(m)).store(e + j);
  }
  for (; j < hi; ++j) e[j] = canonical_exp(x[j] - m);
  return m;
}

}  // namespace kvbench
