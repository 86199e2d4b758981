// The work of a group in multiply-adds, from its shape: the same on every machine.
#pragma once

#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// Pairs of one of these rows and a token that it sees.
double visible_tokens(const StreamShape& shape, const std::vector<Index>& rows);

// Exact attention and logits of the rows, and per cell one pass over all visible tokens of every
// scored row (sketches are smaller: an upper bound). Cells that the plan skips cost nothing.
double multiply_adds(const Plan& plan, const WorkGroup& group);

// The same per KV head of the layer; what records of the whole layer take is spread over those that
// have cells.
std::vector<double> head_multiply_adds(const Plan& plan, const WorkGroup& group);

}  // namespace kvbench
