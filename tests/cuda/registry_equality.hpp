// Every algorithm of the registry replayed with some kernels and with the CPU's.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::test {

// Decisions (memory, counters, clusters) equal, metrics within 1e-9.
void check_registry(const Kernels& kernels);

}  // namespace kvbench::test
