// Shares of attention over a list of tokens.
#pragma once

#include <cstddef>
#include <limits>

namespace kvbench {

// x -> exp(x - max x) / sum in canonical arithmetic, the sum ascending; `count` is at least 1.
// Throws CellError, "`what` overflow", if one is not finite.
void softmax(double* x, std::size_t count, const char* what = "logits");

inline constexpr double kNoSink = -std::numeric_limits<double>::infinity();

// The same of a query head with a sink, whose exponential is the last of the sum.
void softmax_with_sink(double* x, std::size_t count, double sink);

}  // namespace kvbench
