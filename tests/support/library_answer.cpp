#include "support/library_answer.hpp"

#include "kernels/kernels.hpp"

namespace kvbench::test {

Estimate library_answer(const Stream& stream, int g, Index row, const Sketch& sketch) {
  LogitBlock block;
  cpu_kernels().logits(stream, {row}, block);
  const ExactRows exact = cpu_kernels().exact_attention(stream, {row});
  const std::size_t at = static_cast<std::size_t>(g);
  QueryRow query;
  query.x = block.logits.data() + g * block.tokens;
  query.e = block.exps.data() + g * block.tokens;
  query.max_logit = block.max_logit[at];
  query.exact_output = exact.outputs.data() + g * stream.shape.dv;
  query.exact_max = exact.max_logit[at];
  query.exact_normalizer = exact.normalizer[at];
  Estimator estimator(stream);
  estimator.take(sketch);
  Estimate out;
  estimator.answer(query, out);
  return out;
}

}  // namespace kvbench::test
