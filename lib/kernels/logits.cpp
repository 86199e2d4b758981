#include <algorithm>

#include "kernels/cpu_kernels.hpp"
#include "kernels/packed_keys.hpp"
#include "kernels/row_exponentials.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr Index kTileTokens = 256;
constexpr Index kQueriesPerCall = 96;

// Fills columns of one tile for every row that sees it.
void fill_tile(const Stream& stream, Index tile_first, LogitBlock& out) {
  const StreamShape& shape = stream.shape;
  const Index tile_last = std::min(tile_first + kTileTokens, out.tokens);
  const PackedKeys tile(stream.keys, tile_first, tile_last);
  std::vector<const double*> queries;
  std::vector<Index> query_count;
  // A whole tile is written in place where its queries follow one another.
  const bool is_whole = tile.padded() == tile_last - tile_first;
  std::vector<double> scratch;
  const auto flush = [&] {
    double* const first = out.logits.data() + query_count.front() * out.tokens + tile_first;
    if (is_whole && query_count.back() - query_count.front() + 1 == std::ssize(queries)) {
      tile.logits(shape, queries, 0, tile.padded(), first, out.tokens);
    } else {
      scratch.resize(kQueriesPerCall * kTileTokens);
      tile.logits(shape, queries, 0, tile.padded(), scratch.data(), kTileTokens);
      for (std::size_t q = 0; q < queries.size(); ++q) {
        const double* from = scratch.data() + q * kTileTokens;
        std::copy(from, from + (tile_last - tile_first),
                  out.logits.data() + query_count[q] * out.tokens + tile_first);
      }
    }
    if (shape.alibi) {
      for (const Index query_index : query_count) {
        add_alibi(stream, static_cast<int>(query_index % shape.heads_per_kv),
                  out.rows[query_index / shape.heads_per_kv], tile_first, tile_last,
                  out.logits.data() + query_index * out.tokens + tile_first);
      }
    }
    queries.clear();
    query_count.clear();
  };
  for (std::size_t r = 0; r < out.rows.size(); ++r) {
    const Index i = out.rows[r];
    if (shape.visible_end(i) <= tile_first || shape.first_visible(i) >= tile_last) continue;
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      queries.push_back(stream.query(g, i));
      query_count.push_back(static_cast<Index>(r) * shape.heads_per_kv + g);
      if (std::ssize(queries) == kQueriesPerCall) flush();
    }
  }
  if (!queries.empty()) flush();
}

}  // namespace

void CpuKernels::logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const {
  out.rows = std::move(rows);
  const Index heads_per_kv = stream.shape.heads_per_kv;
  const Index query_count = std::ssize(out.rows) * heads_per_kv;
  out.tokens = out.rows.empty() ? 0 : stream.shape.visible_end(out.rows.back());
  out.logits.resize(query_count * out.tokens);
  out.exps.resize(out.logits.size());
  out.max_logit.resize(query_count);
  if (query_count == 0) return;

  const Index first_tile = stream.shape.first_visible(out.rows.front()) / kTileTokens;
  const Index tiles = (out.tokens + kTileTokens - 1) / kTileTokens - first_tile;
  parallel_for(tiles, [&](Index t) { fill_tile(stream, (first_tile + t) * kTileTokens, out); });
  parallel_for(query_count, [&](Index query_index) {
    const Index i = out.rows[query_index / heads_per_kv];
    const auto g = static_cast<int>(query_index % heads_per_kv);
    out.max_logit[query_index] = exponentiate(
        out.logits.data() + query_index * out.tokens, out.exps.data() + query_index * out.tokens,
        stream.shape.first_visible(i), stream.shape.visible_end(i), stream.sink(g));
  });
}

}  // namespace kvbench
