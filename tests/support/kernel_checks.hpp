// The kernels of any table against the CPU's on one list of cases: what decides something bit by
// bit, metrics within 1e-9. By doctest's macros; what iterates them all is kernel_contracts.hpp.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::test {

void check_exact_attention(const Kernels& kernels);
void check_exact_attention(const Kernels& kernels, const Stream& stream,
                           const std::vector<Index>& rows);
void check_logits(const Kernels& kernels);
void check_score_sums(const Kernels& kernels);
void check_clusters(const Kernels& kernels);
void check_centers(const Kernels& kernels);
void check_value_norms(const Kernels& kernels);
void check_walks(const Kernels& kernels);
void check_resident_rows(const Kernels& kernels);
void check_weighted_values(const Kernels& kernels);

// Streams that are held, and later change, give what they would give without.
void check_resident_streams(const Kernels& kernels);

// Two calls give the same bits.
void check_determinism(const Kernels& kernels);

}  // namespace kvbench::test
