#include "sketch/cache_positions.hpp"

#include <cmath>

#include "core/canonical.hpp"

namespace kvbench {
namespace {

// Turns a vector by `positions`.
void rotate(const Rope& rope, double positions, const double* in, Index d, double* out) {
  for (Index k = 0; k < d; ++k) out[k] = in[k];
  const Index pairs = static_cast<Index>(rope.inv_freq.size());
  for (Index p = 0; p < pairs; ++p) {
    const Index a = rope.interleaved ? 2 * p : p;
    const Index b = rope.interleaved ? 2 * p + 1 : p + pairs;
    const double angle = positions * rope.inv_freq[static_cast<std::size_t>(p)];
    const double c = std::cos(angle);
    const double s = std::sin(angle);
    out[a] = in[a] * c - in[b] * s;
    out[b] = in[b] * c + in[a] * s;
  }
}

}  // namespace

void cache_position_logits(const Stream& stream, Index row, int g,
                           const std::vector<std::int32_t>& tokens, std::vector<double>& out) {
  const StreamShape& shape = stream.shape;
  const Index kept = static_cast<Index>(tokens.size());
  out.resize(tokens.size());
  // Turning a key forth is turning the query back; tokens in a row share their turn.
  std::vector<double> query(static_cast<std::size_t>(shape.d));
  Index turned_by = -1;
  for (Index p = 0; p < kept; ++p) {
    const Index token = tokens[static_cast<std::size_t>(p)];
    const Index shift = row - (kept - 1) + p - token;
    if (p == 0 || shift != turned_by) {
      rotate(*shape.rope, -static_cast<double>(shift), stream.query(g, row), shape.d, query.data());
      turned_by = shift;
    }
    double x = shape.scale * canonical_dot(query.data(), stream.keys.row(token), shape.d);
    if (shape.softcap > 0.0) x = canonical_softcap(x, shape.softcap);
    out[static_cast<std::size_t>(p)] = x;
  }
}

}  // namespace kvbench
