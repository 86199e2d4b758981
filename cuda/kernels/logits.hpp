// Kernels::logits on a device: canonical logits of tiles of 64 queries and 64 tokens, then each
// query's maximum and exponentials.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/kernels/block_largest.hpp"
#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/product_tile.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

struct FillLogits {
  using Tile = ProductTile<64, 64>;
  static constexpr int kThreads = Tile::kThreads;

  StreamView stream;
  Index first_token = 0;  // column 0 of `logits`
  Index columns = 0;
  double* logits = nullptr;  // [queries, columns]; 0 if a query does not see a token

  struct Shared {
    Tile::Shared tile;
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index first_query_index = block.y * 64;
    const Index first = block.x * 64;  // column
    const Index last_token = first_token + columns;
    typename B::template Own<Tile::Values> own(block);
    if (!any_visible(first_query_index, first_token + first)) {
      block.each(64 * 64, [&](Index i) {
        const Index query_index = first_query_index + i / 64;
        const Index column = first + i % 64;
        if (query_index < stream.query_count && column < columns)
          logits[query_index * columns + column] = 0.0;
      });
      return;
    }
    Tile::template compute<DotStep>(
        block, own, shared.tile, stream.d,
        [&](int q) { return stream.query(first_query_index + q); },
        [&](int j) { return stream.key(first_token + first + j, last_token); });
    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        const Index query_index = first_query_index + Tile::left_of(t, r);
        if (query_index >= stream.query_count) continue;
        const Index row = stream.row_of(query_index);
        for (int c = 0; c < 4; ++c) {
          const Index column = first + Tile::right_of(t, c);
          if (column >= columns) continue;
          logits[query_index * columns + column] =
              stream.sees(row, first_token + column) ? stream.logit(own[t].of[r][c]) : 0.0;
        }
      }
    });
  }

 private:
  // Whether some of 64 queries sees some of 64 tokens.
  KVBENCH_DEVICE bool any_visible(Index first_query_index, Index token) const {
    const Index last_query_index = smaller(first_query_index + 64, stream.query_count) - 1;
    return token <= stream.row_of(last_query_index) &&
           token + 64 > stream.first_visible(stream.row_of(first_query_index));
  }
};

struct Exponentiate {
  static constexpr int kThreads = 256;

  StreamView stream;
  Index first_token = 0;
  Index columns = 0;
  const double* logits = nullptr;  // [queries, columns]
  double* exps = nullptr;          // [queries, columns]; 0 if a query does not see a token
  double* max_logit = nullptr;     // [queries]

  struct Shared {
    double largest[kThreads];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index query_index = block.x;
    const Index row = stream.row_of(query_index);
    const Index lo = stream.first_visible(row) - first_token;
    const Index hi = row + 1 - first_token;
    const double* x = logits + query_index * columns;
    block.threads([&](int t) {
      double largest = x[lo];
      for (Index j = lo + t; j < hi; j += kThreads) largest = largest > x[j] ? largest : x[j];
      shared.largest[t] = largest;
    });
    gather_largest(block, shared.largest);
    block.threads([&](int t) {
      const double m = shared.largest[0];
      if (t == 0) max_logit[query_index] = m;
      for (Index j = t; j < columns; j += kThreads) {
        exps[query_index * columns + j] = j >= lo && j < hi ? canonical_exp(x[j] - m) : 0.0;
      }
    });
  }
};

// Room on the device for logits, exponentials and maxima of some queries and `columns` tokens from
// `first_token` on.
struct LogitRoom {
  Index first_token = 0;
  Index columns = 0;
  double* logits = nullptr;     // [queries, columns]
  double* exps = nullptr;       // [queries, columns]
  double* max_logit = nullptr;  // [queries]
};

template <Machine M>
void fill_logits(M& machine, const StreamView& view, const LogitRoom& room) {
  FillLogits fill;
  fill.stream = view;
  fill.first_token = room.first_token;
  fill.columns = room.columns;
  fill.logits = room.logits;
  machine.launch(fill, {.x = blocks_of(64, room.columns), .y = blocks_of(64, view.query_count)});
  Exponentiate exponentiate;
  exponentiate.stream = view;
  exponentiate.first_token = room.first_token;
  exponentiate.columns = room.columns;
  exponentiate.logits = room.logits;
  exponentiate.exps = room.exps;
  exponentiate.max_logit = room.max_logit;
  machine.launch(exponentiate, {.x = view.query_count});
}

// Rows at once that the grid of FillLogits takes.
inline Index most_logit_rows(Index heads_per_kv) { return larger(1, 65535 * 64 / heads_per_kv); }

template <Machine M>
void logits(M& machine, const Stream& stream, std::vector<Index> rows, LogitBlock& out) {
  const StreamShape& shape = stream.shape;
  out.rows = std::move(rows);
  const Index count = static_cast<Index>(out.rows.size());
  const Index heads_per_kv = shape.heads_per_kv;
  const Index query_count = count * heads_per_kv;
  out.tokens = count == 0 ? 0 : out.rows.back() + 1;
  const auto numbers = static_cast<std::size_t>(query_count * out.tokens);
  out.max_logit.resize(static_cast<std::size_t>(query_count));
  if (count == 0) {
    out.logits.clear();
    out.exps.clear();
    return;
  }

  using Rows = DeviceStream<M>;
  DeviceMatrix keys(machine, first_rows(stream.keys, out.tokens));
  const auto room = machine.reserve(
      {.what = "logits",
       .fixed_bytes = keys.bytes(),
       .row_bytes = Rows::row_bytes(shape) + heads_per_kv * bytes_of_doubles(2 * out.tokens + 1),
       .rows = smaller(count, most_logit_rows(heads_per_kv))});
  const Index at_once = room.rows() * heads_per_kv;
  Rows device(machine, stream, keys.bring(), room.rows());
  auto x = machine.template allocate<double>(at_once * out.tokens);
  auto e = machine.template allocate<double>(at_once * out.tokens);
  auto m = machine.template allocate<double>(at_once);
  for (Index first = 0; first < count; first += room.rows()) {
    const Index batch = smaller(room.rows(), count - first);
    const Index* batch_rows = out.rows.data() + first;
    const StreamView view = device.at(batch_rows, batch);
    // Columns that no row of the batch sees are not computed.
    const Index first_token = shape.first_visible(batch_rows[0]);
    const Index columns = batch_rows[batch - 1] + 1 - first_token;
    fill_logits(machine, view, {first_token, columns, x.data(), e.data(), m.data()});
    // The first time the host fills its memory while the device works.
    out.logits.resize(numbers);
    out.exps.resize(numbers);
    const Index at = first * heads_per_kv;
    const Index to = at * out.tokens + first_token;
    machine.download_rows(out.logits.data() + to, out.tokens, x.data(), columns, view.query_count);
    machine.download_rows(out.exps.data() + to, out.tokens, e.data(), columns, view.query_count);
    machine.download(out.max_logit.data() + at, m.data(), view.query_count);
  }
}

}  // namespace kvbench::cuda
