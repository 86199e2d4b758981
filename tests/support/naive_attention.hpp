// Dense softmax attention, straight from its definition, in long double.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "sketch/sketch.hpp"

namespace kvbench::test {

using Real = long double;

// The final logit of query (g, row) and token j: scale, then soft-cap, then the bias by distance.
Real naive_logit(const Stream& stream, int g, Index row, Index j);

// The same with another key in the place of token j's; j < 0: of no token.
Real naive_own_logit(const Stream& stream, int g, Index row, const std::vector<double>& key,
                     Index j = -1);

// The logit of a feature with that key, without the sketch's shift.
Real naive_feature_logit(const Stream& stream, int g, Index row, const std::vector<double>& key);

// That of token j with its key turned by `turn` positions of the stream's RoPE.
Real naive_turned_logit(const Stream& stream, int g, Index row, Index j, Index turn);

// The logit of the sink of query head g; -infinity without one.
Real naive_sink(const Stream& stream, int g);

// The tokens [first, last] that a row sees, by the mask's own words.
struct Visible {
  Index first = 0;
  Index last = 0;
};
Visible naive_visible(const StreamShape& shape, Index row);

// Row `row` of query head g. Vectors over the visible tokens start at token lo.
struct NaiveRow {
  Index lo = 0;
  std::vector<Real> x;  // logits of the visible tokens
  std::vector<Real> p;  // softmax over them and the sink
  std::vector<Real> a;  // [dv] exact output
  Real max = 0;         // largest logit, the sink's among them
  Real z = 0;           // sum exp(x - max), with the sink
  Real sink = 0;        // the sink's part of z; 0 without one
};
NaiveRow naive_row(const Stream& stream, int g, Index row);

// A sketch's answer to a query, with its two sums under the shift `exact.max`.
struct NaiveAnswer {
  std::vector<Real> numerator;  // [dv] sum w_num exp(x - max) v
  Real numerator_mass = 0;      // sum w_num exp(x - max)
  Real denominator = 0;         // sum w_den exp(x - max)
  std::vector<Real> z;          // [dv], 0 if the denominator is empty
  bool empty_denominator = false;
  bool clamped = false;  // by the sketch's rule
};
NaiveAnswer naive_answer(const Stream& stream, int g, Index row, const Sketch& sketch);

}  // namespace kvbench::test
