// Every metric of CellErrors and CellMass by its definition; spectral norms by a dense SVD.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "metrics/errors.hpp"
#include "sketch/sketch.hpp"

namespace kvbench::test {

struct NaiveReport {
  CellErrors errors;
  CellMass mass;
  Index empty_denominator = 0;
  Index undefined_rows = 0;
};

// `sketches[r]` is what is held when `rows[r]` is answered.
NaiveReport naive_report(const Stream& stream, const std::vector<Index>& rows,
                         const std::vector<Sketch>& sketches);

// ||M||_op and ||M||_F of rows [first, last) of a matrix.
double naive_spectral_norm(ConstMatrix matrix, Index first, Index last);
double naive_frobenius_norm(ConstMatrix matrix, Index first, Index last);

// Quantile of unsorted values with linear interpolation, q in [0, 1].
double naive_quantile(std::vector<double> values, double q);

// Every number of `a` and `b` in pairs, with its name; absent ones as NaN.
struct NamedPair {
  const char* name;
  double a;
  double b;
};
std::vector<NamedPair> paired_metrics(const CellErrors& a, const CellMass& a_mass,
                                      const CellErrors& b, const CellMass& b_mass);

}  // namespace kvbench::test
