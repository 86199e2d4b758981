// CPU side of Kernels::score_sums.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

std::vector<ScoreSums> score_sums(const Stream& stream, Index first, Index last,
                                  const std::vector<ScoreRule>& rules);

}  // namespace kvbench::cpu
