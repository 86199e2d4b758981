#include "support/library_answer.hpp"

namespace kvbench::test {

LibraryAnswer::LibraryAnswer(const Stream& stream, int g, Index row)
    : exact_(cpu_kernels().exact_attention(stream, {row})), estimator_(stream, cpu_kernels()) {
  cpu_kernels().logits(stream, {row}, block_);
  query_ = {row, g, g, exact_of(exact_, g, stream.shape.dv), logits_of(block_, g)};
}

Answer LibraryAnswer::operator()(const Sketch& sketch) {
  estimator_.set_sketch(sketch);
  Answer out;
  estimator_.enqueue(query_);
  estimator_.flush([&](const Answer& estimate) { out = estimate; });
  return out;
}

Answer library_answer(const Stream& stream, int g, Index row, const Sketch& sketch) {
  return LibraryAnswer(stream, g, row)(sketch);
}

}  // namespace kvbench::test
