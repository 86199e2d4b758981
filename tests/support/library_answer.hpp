// The library's own answer to one query: canonical logits, exact attention and the estimator.
#pragma once

#include "core/stream.hpp"
#include "sketch/estimator.hpp"

namespace kvbench::test {

Estimate library_answer(const Stream& stream, int g, Index row, const Sketch& sketch);

}  // namespace kvbench::test
