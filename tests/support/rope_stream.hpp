// Streams whose keys and queries carry rotary positions, together with what they were before.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "support/naive_positions.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {

struct RopeStream {
  std::unique_ptr<OwnedStream> turned;  // as a dump holds it: rows turned by their positions
  std::unique_ptr<OwnedStream> plain;   // free of positions
};

// `rotated` dimensions carry positions, the rest do not; frequencies fall by powers of `theta`.
inline RopeStream make_rope_stream(const StreamSpec& spec, Index rotated, bool interleaved,
                                   double theta = 100.0) {
  auto rope = std::make_shared<Rope>();
  rope->interleaved = interleaved;
  for (Index p = 0; p < rotated / 2; ++p) {
    rope->inv_freq.push_back(
        std::pow(theta, -2.0 * static_cast<double>(p) / static_cast<double>(rotated)));
  }
  RopeStream out{make_stream(spec), make_stream(spec)};
  OwnedStream& turned = *out.turned;
  const auto turn = [&](std::vector<double>& rows, Index first_position) {
    const auto d = static_cast<std::size_t>(spec.d);
    for (std::size_t r = 0; r * d < rows.size(); ++r) {
      const std::vector<Real> row(rows.begin() + static_cast<Index>(r * d),
                                  rows.begin() + static_cast<Index>((r + 1) * d));
      const std::vector<Real> moved =
          naive_rotated(*rope, row, static_cast<Real>(first_position + static_cast<Index>(r)));
      for (std::size_t k = 0; k < d; ++k) rows[r * d + k] = static_cast<double>(moved[k]);
    }
  };
  turn(turned.keys, 0);
  for (std::vector<double>& head : turned.queries) turn(head, spec.first_query);
  turned.stream.shape.rope = rope;
  out.plain->stream.shape.rope = rope;
  return out;
}

}  // namespace kvbench::test
