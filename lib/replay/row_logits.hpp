// A decode row's logits, for algorithms, out of those of a block of rows.
#pragma once

#include <cstddef>

#include "algorithms/algorithm.hpp"
#include "kernels/kernels.hpp"

namespace kvbench {

// Logits of row number `r` of the block, whose exponentials are there; both must outlive the
// result.
RowLogits row_logits(const Stream& stream, const LogitBlock& block, std::size_t r);

}  // namespace kvbench
