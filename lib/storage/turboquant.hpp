// The points of turboquant's form vllm.
#pragma once

#include <vector>

namespace kvbench {

// The 2^bits points, bits 3 or 4, that vllm's centroids.py computes for N(0, 1): 200 steps of
// Lloyd's iteration from 2^bits even cells of [-3.5, 3.5], integrals by 200 trapezoids each, the
// outer cells up to 10.5. Up to 1.7e-3 off the best points.
std::vector<double> vllm_points(int bits);

}  // namespace kvbench
