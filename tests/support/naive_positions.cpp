#include "support/naive_positions.hpp"

#include <algorithm>
#include <cmath>

namespace kvbench::test {

std::vector<Real> naive_rotated(const Rope& rope, const std::vector<Real>& vector, Real positions) {
  std::vector<Real> out = vector;
  const std::size_t pairs = rope.inv_freq.size();
  for (std::size_t p = 0; p < pairs; ++p) {
    const std::size_t first = rope.interleaved ? 2 * p : p;
    const std::size_t second = rope.interleaved ? 2 * p + 1 : p + pairs;
    const Real angle = positions * static_cast<Real>(rope.inv_freq[p]);
    out[first] = vector[first] * std::cos(angle) - vector[second] * std::sin(angle);
    out[second] = vector[first] * std::sin(angle) + vector[second] * std::cos(angle);
  }
  return out;
}

std::vector<Real> naive_cache_logits(const Stream& stream, int g, Index row,
                                     const std::vector<Index>& kept) {
  const Index last_slot = std::ssize(kept) - 1;
  const double* query = stream.query(g, row);
  std::vector<Real> out;
  for (Index slot = 0; slot <= last_slot; ++slot) {
    const Index token = kept[slot];
    const double* key = stream.keys.row(token);
    // The query is at `row` and in slot h - 1: slot s is position row - (h - 1) + s.
    const Index position = row - last_slot + slot;
    const std::vector<Real> turned = naive_rotated(
        *stream.shape.rope, std::vector<Real>(key, key + stream.shape.d), position - token);
    Real x = 0;
    for (std::size_t k = 0; k < turned.size(); ++k) x += turned[k] * static_cast<Real>(query[k]);
    x *= stream.shape.scale;
    const Real cap = stream.shape.softcap;
    out.push_back(cap > 0 ? cap * std::tanh(x / cap) : x);
  }
  return out;
}

NaiveCacheRow naive_cache_row(const Stream& stream, int g, Index row,
                              const std::vector<Index>& kept) {
  NaiveCacheRow out;
  out.x = naive_cache_logits(stream, g, row, kept);
  const Real max = *std::max_element(out.x.begin(), out.x.end());
  Real sum = 0;
  for (const Real x : out.x) {
    out.p.push_back(std::exp(x - max));
    sum += out.p.back();
  }
  out.z.assign(stream.shape.dv, 0);
  for (std::size_t slot = 0; slot < kept.size(); ++slot) {
    out.p[slot] /= sum;
    for (std::size_t k = 0; k < out.z.size(); ++k) {
      out.z[k] += out.p[slot] * stream.values(kept[slot], static_cast<Index>(k));
    }
  }
  return out;
}

}  // namespace kvbench::test
