#include "support/library_answer.hpp"

namespace kvbench::test {

LibraryAnswer::LibraryAnswer(const Stream& stream, int g, Index row)
    : exact_(cpu_kernels().exact_attention(stream, {row})), estimator_(stream, cpu_kernels()) {
  cpu_kernels().logits(stream, {row}, block_);
  const std::size_t at = static_cast<std::size_t>(g);
  query_.x = block_.logits.data() + g * block_.tokens;
  query_.e = block_.exps.data() + g * block_.tokens;
  query_.max_logit = block_.max_logit[at];
  query_.exact_output = exact_.outputs.data() + g * stream.shape.dv;
  query_.exact_max = exact_.max_logit[at];
  query_.exact_normalizer = exact_.normalizer[at];
  query_.row = row;
  query_.head = g;
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
