#include "bench/comparison_stream.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/distance_quantile.hpp"
#include "system/error.hpp"

namespace kvbench::bench {
namespace {

void alone(Stream& stream) {
  stream.shape.heads_per_kv = 1;
  stream.queries.resize(1);
}

void place(ConstMatrix from, UnfilledDoubles& to, Index column) {
  to.resize(from.rows * kWide);
  for (Index i = 0; i < from.rows; ++i) {
    std::copy_n(from.row(i), from.cols, to.data() + i * kWide + column);
  }
}

void widen(const Dump& dump, const SequenceInfo& sequence, ComparisonStream& out) {
  const Index d = out.head.shape.d;
  if (kWide % d != 0 || out.head.shape.dv != d || out.head.shape.first_query != 0) return;
  StreamData& data = out.wide_data;
  data.queries.resize(1);
  Index column = 0;
  for (const LayerInfo& layer : sequence.layers) {
    if (layer.d != d || layer.dv != d || layer.tokens != out.head.shape.tokens) return;
    for (int head = 0; head < layer.kv_heads && column < kWide; ++head, column += d) {
      const auto part = dump.read_stream(sequence.name, layer.index, head);
      place(part->stream.keys, data.keys, column);
      place(part->stream.values, data.values, column);
      place(part->stream.queries[0], data.queries[0], column);
    }
  }
  if (column < kWide) return;
  const Index n = out.head.shape.tokens;
  out.wide.id = out.head.id;
  out.wide.shape.tokens = n;
  out.wide.shape.d = out.wide.shape.dv = kWide;
  out.wide.shape.scale = 1.0 / std::sqrt(static_cast<double>(kWide));
  out.wide.keys = {data.keys.data(), n, kWide};
  out.wide.values = {data.values.data(), n, kWide};
  out.wide.queries = {{data.queries[0].data(), n, kWide}};
}

constexpr Index kMin = 1024;  // twice the budget of the tasks that hold tokens

// Whether a layer has what peers compute: attention over all tokens before, from every row.
bool is_plain(const LayerInfo& layer) {
  return (layer.window == 0 || layer.window >= layer.tokens) && layer.softcap == 0.0 &&
         layer.query_rows == layer.tokens && layer.tokens >= kMin;
}

int middle_layer(const DumpInfo& dump, const SequenceInfo& sequence) {
  std::vector<int> layers;
  for (const LayerInfo& layer : sequence.layers) {
    if (is_plain(layer)) layers.push_back(layer.index);
  }
  if (layers.empty()) {
    throw InputError(dump.path + ": sequences/" + sequence.name +
                     ": no layer has 1024 tokens or more, every query, no sliding window and no "
                     "soft-cap, as the comparison wants; set KVBENCH_BENCH_DUMP to another dump");
  }
  return layers[layers.size() / 2];
}

}  // namespace

ComparisonStream comparison_stream(const Dump& dump) {
  ComparisonStream out;
  const SequenceInfo& sequence = dump.info().sequences.front();
  out.sequence = sequence.name;
  out.layer = middle_layer(dump.info(), sequence);
  out.head_data = dump.read_stream(sequence.name, out.layer, 0);
  out.head = out.head_data->stream;
  alone(out.head);
  out.delta = distance_quantile(out.head.keys, kDeltaQuantile);
  widen(dump, sequence, out);
  return out;
}

}  // namespace kvbench::bench
