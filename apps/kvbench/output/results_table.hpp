// The table that a run ends with.
#pragma once

#include <cstddef>
#include <string>

#include "results/summary.hpp"

namespace kvbench {

// A row per method (algorithm, label, number of tokens), a column per memory: the parts of the
// exact cache that parameters ask for, else 12.5, 25 and 50 %. A cell is the relative Frobenius
// error of the setting that asks for that memory, the best where several do; of a method that asks
// for none, its best within it. Lowest in the middle column first. Next to it the spectral error,
// the mean error of a row, and what the setting is and takes.
//
// Every number is over the same KV heads, which lines below the table count; where nothing is in
// common the text lists counts alone. Empty if no cell is ok. `columns`: as Table::text() has it.
std::string results_table(const ComparedSettings& compared, std::size_t columns);

}  // namespace kvbench
