// The library's own answer to a query: canonical logits, exact attention and the estimator.
#pragma once

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "sketch/estimator.hpp"

namespace kvbench::test {

// Answers one row and query head of a stream from any number of sketches.
class LibraryAnswer {
 public:
  LibraryAnswer(const Stream& stream, int g, Index row);

  Answer operator()(const Sketch& sketch);

 private:
  LogitBlock block_;
  ExactRows exact_;
  QueryRow query_;
  Estimator estimator_;
};

Answer library_answer(const Stream& stream, int g, Index row, const Sketch& sketch);

}  // namespace kvbench::test
