#include "replay/row_logits.hpp"

namespace kvbench {

RowLogits row_logits(const Stream& stream, const LogitBlock& block, std::size_t r) {
  const Index first = static_cast<Index>(r) * stream.shape.heads_per_kv;
  RowLogits out;
  out.row = block.rows[r];
  out.lo = stream.shape.first_visible(out.row);
  out.end = stream.shape.visible_end(out.row);
  out.sinks = stream.sinks.empty() ? nullptr : stream.sinks.data();
  out.heads_per_kv = stream.shape.heads_per_kv;
  out.x = block.logits.data() + first * block.tokens;
  out.e = block.exps.data() + first * block.tokens;
  out.max = block.max_logit.data() + first;
  out.stride = block.tokens;
  return out;
}

}  // namespace kvbench
