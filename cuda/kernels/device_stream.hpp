// A stream, or some rows of it, in a device's memory.
#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/stream.hpp"
#include "cuda/kernels/device_matrix.hpp"
#include "cuda/machine.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::cuda {

// The stream as bodies see it: query r * G + g is query head g at token position rows[r].
struct StreamView {
  const double* queries = nullptr;  // [queries, d]
  const double* keys = nullptr;     // [n, d]
  const Index* rows = nullptr;      // [queries / G], ascending
  Index query_count = 0;
  Index d = 0;
  Index heads_per_kv = 1;
  Index window = 0;
  Index chunk = 0;
  double scale = 1.0;
  double softcap = 0.0;

  KVBENCH_DEVICE Index row_of(Index query_index) const { return rows[query_index / heads_per_kv]; }
  KVBENCH_DEVICE Index first_visible(Index row) const {
    if (chunk > 0) return row / chunk * chunk;
    return window > 0 && row >= window ? row - window + 1 : 0;
  }
  KVBENCH_DEVICE bool sees(Index row, Index token) const {
    return token <= row && token >= first_visible(row);
  }
  // The query of that index; null past the last one, as ProductTile expects it.
  KVBENCH_DEVICE const double* query(Index query_index) const {
    return query_index < query_count ? queries + query_index * d : nullptr;
  }
  KVBENCH_DEVICE const double* key(Index token, Index tokens) const {
    return token < tokens ? keys + token * d : nullptr;
  }
  // The canonical logit whose dot product is `dot`.
  KVBENCH_DEVICE double logit(double dot) const {
    const double x = scale * dot;
    return softcap > 0.0 ? canonical_softcap(x, softcap) : x;
  }
};

// Keys on the device, and room there for the queries of up to `rows_at_once` rows.
template <Machine M>
class DeviceStream {
 public:
  static Index row_bytes(const StreamShape& shape) { return bytes_of_doubles(doubles(shape, 1)); }
  // Bytes for this many rows.
  static Index doubles(const StreamShape& shape, Index rows) {
    return rows * (shape.heads_per_kv * shape.d + 1);
  }

  DeviceStream(M& machine, const Stream& stream, const double* keys, Index rows_at_once)
      : DeviceStream(machine, stream, keys, rows_at_once,
                     machine.template allocate<double>(doubles(stream.shape, rows_at_once))) {}
  // In the caller's memory of doubles(shape, rows_at_once).
  DeviceStream(M& machine, const Stream& stream, const double* keys, Index rows_at_once,
               double* memory)
      : machine_(machine),
        stream_(stream),
        keys_(keys),
        queries_(memory),
        rows_(reinterpret_cast<Index*>(memory +
                                       rows_at_once * stream.shape.heads_per_kv * stream.shape.d)) {
    const StreamShape& shape = stream.shape;
    if (shape.sinks || shape.alibi || !shape.causal) {
      throw std::logic_error("the device's kernels know neither sinks, ALiBi nor later tokens");
    }
  }

  // Brings the queries of `rows` (token positions, at most rows_at_once) to the device.
  StreamView at(const Index* rows, Index count) {
    const StreamShape& shape = stream_.shape;
    bring_queries(rows, count);
    machine_.upload(rows_, rows, count);
    StreamView view;
    view.queries = queries_;
    view.keys = keys_;
    view.rows = rows_;
    view.query_count = count * shape.heads_per_kv;
    view.d = shape.d;
    view.heads_per_kv = shape.heads_per_kv;
    view.window = shape.window;
    view.chunk = shape.chunk;
    view.scale = shape.scale;
    view.softcap = shape.softcap;
    return view;
  }

 private:
  static_assert(sizeof(Index) == sizeof(double));
  using Memory = decltype(std::declval<M&>().template allocate<double>(1));

  DeviceStream(M& machine, const Stream& stream, const double* keys, Index rows_at_once, Memory own)
      : DeviceStream(machine, stream, keys, rows_at_once, own.data()) {
    own_.emplace(std::move(own));
  }

  void bring_queries(const Index* rows, Index count) {
    const StreamShape& shape = stream_.shape;
    const Index numbers = count * shape.heads_per_kv * shape.d;
    // Those of neighbouring rows of one head lie as they are wanted.
    const auto gap = [](Index a, Index b) { return b != a + 1; };
    if (shape.heads_per_kv == 1 && stream_.queries[0].stride == shape.d && count > 0 &&
        std::adjacent_find(rows, rows + count, gap) == rows + count) {
      machine_.upload(queries_, stream_.query(0, rows[0]), numbers);
      return;
    }
    packed_.resize(static_cast<std::size_t>(numbers));
    double* to = packed_.data();
    for (Index r = 0; r < count; ++r) {
      for (int g = 0; g < shape.heads_per_kv; ++g, to += shape.d) {
        std::copy_n(stream_.query(g, rows[r]), shape.d, to);
      }
    }
    machine_.upload(queries_, packed_.data(), numbers);
  }

  M& machine_;
  const Stream& stream_;
  const double* keys_;
  double* queries_;
  Index* rows_;
  std::optional<Memory> own_;  // memory of both, if it is not the caller's
  std::vector<double> packed_;
};

}  // namespace kvbench::cuda
