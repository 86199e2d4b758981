// Whether a kernel table can be trusted here and now.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// Runs every kernel on a small made-up stream (milliseconds) and compares with the CPU's: decisions
// bit by bit, metrics within 1e-9. Empty if all agree, else which does not: "score sums".
std::string kernel_that_differs(const Kernels& kernels);

// ResidentRows::answer by the CPU's logits of these rows: what resident rows are compared with.
void answer_by_logits(const Stream& stream, const LogitBlock& block, const AnswerBatch& batch,
                      std::vector<double>& numerators, std::vector<AnswerMasses>& masses);

}  // namespace kvbench::cuda
