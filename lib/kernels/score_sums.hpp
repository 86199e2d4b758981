// CPU side of Kernels::score_sums.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

std::vector<std::vector<double>> score_sums(const Stream& stream, Index first, Index last,
                                            const ScoreRule& rule);

}  // namespace kvbench::cpu
