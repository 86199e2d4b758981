// `kvbench validate`: stored outputs against exact attention, layer by layer.
#pragma once

#include <optional>
#include <string>

#include "run/stored_outputs.hpp"

namespace kvbench {

// Prints one line per layer that holds `out`, while they are compared. Throws as
// compare_stored_outputs().
StoredOutputs print_stored_outputs(const Dump& dump, std::optional<double> tolerance);

// Names the first layers without `out`, of the dump called `dump`.
void log_uncompared(const StoredOutputs& found, const std::string& dump);

}  // namespace kvbench
