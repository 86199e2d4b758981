#include "sketch/cache_positions.hpp"

#include "core/rotation.hpp"
#include "numerics/canonical.hpp"

namespace kvbench {

void cache_position_logits(const Stream& stream, Index row, int g,
                           const std::vector<std::int32_t>& tokens, std::vector<double>& out) {
  const StreamShape& shape = stream.shape;
  const Index kept = std::ssize(tokens);
  out.resize(tokens.size());
  // Turning a key forth is turning the query back; tokens in a row share their turn.
  std::vector<double> query(shape.d);
  Turn turn(*shape.rope);
  Index turned_by = -1;
  for (Index p = 0; p < kept; ++p) {
    const Index token = tokens[p];
    const Index shift = row - (kept - 1) + p - token;
    if (p == 0 || shift != turned_by) {
      turn.set(-static_cast<double>(shift));
      turn.apply(stream.query(g, row), shape.d, query.data());
      turned_by = shift;
    }
    double x = shape.scale * canonical_dot(query.data(), stream.keys.row(token), shape.d);
    if (shape.softcap > 0.0) x = canonical_softcap(x, shape.softcap);
    out[p] = x;
  }
}

}  // namespace kvbench
