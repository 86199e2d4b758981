// Synthetic dumps: seeded, the same bytes on every host.
#pragma once

#include <string>

#include "synth/options.hpp"

namespace kvbench {

// Writes the dump, in place only when complete. Throws one InputError with every option that is out
// of range (named as on the command line), or if `path` cannot be written.
void synthesize(const SynthOptions& options, const std::string& path);

}  // namespace kvbench
