// One cell of one method, its decisions and its answers timed apart.
#pragma once

#include "algorithms/algorithm.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "metrics/reference.hpp"

namespace kvbench::bench {

// Data that all cells of a stream share: the last rows' exact reference, logits and exponentials.
struct MethodRows {
  MethodRows(const Stream& stream, Index rows);

  const Stream& stream;
  const Index prompt;
  const std::vector<Index> rows;
  const Reference reference;
  BlockRoom room;
  const RowBlock block;
};

struct MethodCell {
  // Seconds of this thread's processor time.
  double decide_seconds = 0.0;  // shared and model work, the prompt, what is done between answers
  double answer_seconds = 0.0;  // the estimator
  Index kept = 0;               // rows of the sketch when the last row is answered
  double values_summed = 0.0;   // sum over all rows and query heads
  double own_keys = 0.0;        // the part whose logits no other cell has
  Index tokens_summed = 0;      // distinct rows of values that are read for any of them, at most n
  std::optional<Clusters> clusters;
};

// On this thread. Throws CellError if the cell fails, or answers from no row.
MethodCell run_method(const MethodRows& on, const AlgorithmDescription& algorithm,
                      const Params& params);

}  // namespace kvbench::bench
