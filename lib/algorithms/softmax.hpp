// Shares of attention over a list of tokens.
#pragma once

#include <cstddef>

namespace kvbench {

// x -> exp(x - max x) / sum in canonical arithmetic, the sum ascending; `count` is at least 1.
// Throws CellError, "`what` overflow", if one is not finite.
void softmax(double* x, std::size_t count, const char* what = "logits");

}  // namespace kvbench
