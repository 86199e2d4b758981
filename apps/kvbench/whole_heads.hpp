// The part of an unfinished run whose settings can be compared.
#pragma once

#include <cstddef>

#include "json/json.hpp"
#include "results/cell_records.hpp"
#include "sweep/plan.hpp"

struct WholeHeads {
  std::size_t whole = 0;  // KV heads (of a dump's sequence and layer) of which no cell is missing
  std::size_t all = 0;
  kvbench::Json summary;  // of their cells alone: every setting is over the same heads
};

WholeHeads whole_heads(const kvbench::Plan& plan, const kvbench::CellRecords& records);
