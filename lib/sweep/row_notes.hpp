// Where evaluate.rows of a sweep asks for more rows than are scored, and where a scored row cannot
// see the evidence that the dump names for it.
#pragma once

#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// Sentences, with the key's place; none where {"last": m}, of decode rows or of the prompt's, finds
// m rows in every group, or another form is given.
std::vector<std::string> notes_of_rows(const Plan& plan);

// A sentence about evidence after its row, which a causal row never sees.
std::vector<std::string> notes_of_evidence(const Plan& plan);

}  // namespace kvbench
