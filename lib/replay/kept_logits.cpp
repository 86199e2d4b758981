#include "replay/kept_logits.hpp"

#include <algorithm>

#include "kernels/packed_keys.hpp"
#include "system/parallel.hpp"

namespace kvbench {

constexpr Index kColumnsPerTask = 16 * PackedKeys::kStep;

void KeptLogits::compute(const Sketch& sketch, Index first, Index last) {
  column_.resize(stream_.shape.tokens, -1);
  for (const std::int32_t token : tokens_) column_[token] = -1;
  tokens_.clear();
  const auto add = [&](Index token) {
    std::int32_t& column = column_[token];
    if (column >= 0) return;
    column = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(static_cast<std::int32_t>(token));
  };
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) add(row.token);
  }
  for (Index token = first; token < last; ++token) add(token);

  const PackedKeys keys(stream_.keys, tokens_);
  std::vector<const double*> queries;
  for (Index i = first; i < last; ++i) {
    for (int g = 0; g < stream_.shape.heads_per_kv; ++g) queries.push_back(stream_.query(g, i));
  }
  first_ = first;
  stride_ = keys.padded();
  x_.resize(queries.size() * stride_);
  parallel_for((stride_ + kColumnsPerTask - 1) / kColumnsPerTask, [&](Index t) {
    const Index begin = t * kColumnsPerTask;
    keys.logits(stream_.shape, queries, begin, std::min(begin + kColumnsPerTask, stride_),
                x_.data() + begin, stride_);
  });
  if (!stream_.shape.alibi) return;
  parallel_for(std::ssize(queries), [&](Index q) {
    add_alibi(stream_, static_cast<int>(q % stream_.shape.heads_per_kv),
              first + q / stream_.shape.heads_per_kv, tokens_, x_.data() + q * stride_);
  });
}

RowLogits KeptLogits::row(Index row) const {
  RowLogits out;
  out.row = row;
  out.lo = stream_.shape.first_visible(row);
  out.end = stream_.shape.visible_end(row);
  out.sinks = stream_.sinks.empty() ? nullptr : stream_.sinks.data();
  out.heads_per_kv = stream_.shape.heads_per_kv;
  out.x = x_.data() + (row - first_) * out.heads_per_kv * stride_;
  out.stride = stride_;
  out.column = column_.data();
  return out;
}

}  // namespace kvbench
