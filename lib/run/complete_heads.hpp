// The part of an unfinished run whose settings can be compared.
#pragma once

#include <cstddef>
#include <vector>

#include "results/cell_records.hpp"
#include "results/summary.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct CompleteHeads {
  std::size_t complete =
      0;  // KV heads (of a dump's sequence and layer) of which no cell is missing
  std::size_t all = 0;
  ComparedSettings settings;  // settings of their cells alone
};

CompleteHeads complete_heads(const Plan& plan, const CellRecords& records);

}  // namespace kvbench
