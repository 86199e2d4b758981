// Promises that every implementation of the kernel table keeps, one row per kernel: against the
// CPU's on one list of cases, what decides something bit by bit, metrics within 1e-9.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::test {

struct KernelContract {
  const char* claim;
  void (*check)(const Kernels& kernels);  // against the CPU's, by doctest's macros
  // As cuda/self_test.hpp names what it compares; its test breaks each of them once.
  std::vector<const char*> self_tests = {};
  bool needs_resident_rows = false;  // for tables whose make_rows_resident is not null
};

// A new kernel adds its row: the CPU's kernels, the executor of tests/cuda, a device and the test
// of the self test iterate them.
const std::vector<KernelContract>& kernel_contracts();

// Checks that tests make of further tables and streams.
void check_exact_attention(const Kernels& kernels, const Stream& stream,
                           const std::vector<Index>& rows);
void check_resident_rows(const Kernels& kernels);
void check_walks(const Kernels& kernels);

}  // namespace kvbench::test
