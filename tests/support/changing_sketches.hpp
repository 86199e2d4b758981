// Answers from exponentials that a kernel table, or the host, keeps of some rows, next to those by
// logits of a new estimator for each, for sketches that change at random: every field equal. By
// doctest's macros.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"

namespace kvbench::test {

struct AnswerCounts {
  int answers = 0;
  int empty = 0;
  int merged = 0;
};

// `sinks`: whether some streams have them.
void check_changing_sketches(const Kernels& kernels, bool sinks, std::uint64_t seed,
                             AnswerCounts& counts);

}  // namespace kvbench::test
