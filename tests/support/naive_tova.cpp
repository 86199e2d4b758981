#include "support/naive_tova.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "support/naive_attention.hpp"
#include "support/naive_ranking.hpp"

namespace kvbench::test {
namespace {

// Softmax over `over` of every query head at a row, summed, for each of `kept`, which are among
// them.
std::vector<Real> weights(const std::vector<const Stream*>& streams, Index row,
                          const std::vector<Index>& over, const std::vector<Index>& kept) {
  std::vector<Real> w(kept.size(), 0);
  for (const Stream* stream : streams) {
    for (int g = 0; g < stream->shape.heads_per_kv; ++g) {
      std::map<Index, Real> x;
      for (const Index j : over) x[j] = naive_logit(*stream, g, row, j);
      Real max = std::max(naive_sink(*stream, g), x.begin()->second);
      for (const auto& [token, logit] : x) max = std::max(max, logit);
      Real sum = std::exp(naive_sink(*stream, g) - max);
      for (const auto& [token, logit] : x) sum += std::exp(logit - max);
      for (std::size_t p = 0; p < kept.size(); ++p) w[p] += std::exp(x.at(kept[p]) - max) / sum;
    }
  }
  return w;
}

}  // namespace

KeptSets naive_tova(const std::vector<const Stream*>& streams, Index prompt, Index budget,
                    bool once) {
  const StreamShape& shape = streams.front()->shape;
  std::vector<Index> held;
  for (Index j = std::min(shape.first_visible(prompt), prompt); j < prompt; ++j) held.push_back(j);
  if (std::ssize(held) > budget) {
    std::vector<Index> seen;
    for (Index j = shape.first_visible(prompt - 1); j < prompt; ++j) seen.push_back(j);
    if (once) held.pop_back();
    const std::vector<Real> w = weights(streams, prompt - 1, seen, held);
    held = naive_best(held, w, once ? budget - 1 : budget);
    if (once) held.push_back(prompt - 1);
  }
  KeptSets out;
  for (Index i = prompt; i < shape.tokens; ++i) {
    held.push_back(i);
    while (held.front() < shape.first_visible(i)) held.erase(held.begin());
    out.push_back(held);
    if (!once && std::ssize(held) > budget) {
      held = naive_best(held, weights(streams, i, held, held), budget);
    }
  }
  return out;
}

}  // namespace kvbench::test
