#include "storage/written_logits.hpp"

#include <algorithm>
#include <utility>

#include "kernels/packed_keys.hpp"

namespace kvbench {
namespace {

constexpr Index kTileTokens = 256;
constexpr Index kQueriesAtOnce = 96;  // that one packing of the keys serves
constexpr Index kMaxBytes = Index{16} << 20;

}  // namespace

Index WrittenLogits::rows_at_once(const StreamShape& shape) {
  const Index queries = std::min(kQueriesAtOnce, kMaxBytes / (8 * shape.tokens));
  return std::max<Index>(1, queries / shape.heads_per_kv);
}

void WrittenLogits::expect(const std::vector<Index>& rows) {
  rows_ = rows;
  first_ = last_ = at_ = 0;
  if (rows.empty()) logits_ = {};
}

void WrittenLogits::begin(std::size_t first) {
  const StreamShape& shape = stream_.shape;
  first_ = first;
  last_ = std::min(rows_.size(), first + rows_at_once(shape));
  // Leftovers of earlier rows belong to tokens that are not asked for.
  logits_.resize((last_ - first_) * (shape.heads_per_kv * shape.tokens));
  known_.assign(shape.tokens, 0);
}

void WrittenLogits::go_to(Index row, const std::vector<std::int32_t>& tokens, ConstMatrix decoded) {
  while (rows_[at_] != row) ++at_;
  if (at_ >= last_) begin(at_);
  unknown_.clear();
  for (const std::int32_t token : tokens) {
    std::uint8_t& known = known_[token];
    if (known == 0) unknown_.push_back(token);
    known = 1;
  }
  if (!unknown_.empty()) compute(unknown_, decoded);
}

void WrittenLogits::compute(const std::vector<std::int32_t>& tokens, ConstMatrix decoded) {
  const StreamShape& shape = stream_.shape;
  std::vector<const double*> queries;
  for (std::size_t r = at_; r < last_; ++r) {
    for (int g = 0; g < shape.heads_per_kv; ++g) queries.push_back(stream_.query(g, rows_[r]));
  }
  double* out = of_head(0);
  const auto of_query = [&](std::size_t q) {
    const std::size_t heads = shape.heads_per_kv;
    return std::pair(static_cast<int>(q % heads), rows_[at_ + q / heads]);
  };
  std::vector<double> scratch(queries.size() * kTileTokens);
  for (std::size_t first = 0; first < tokens.size(); first += kTileTokens) {
    const std::size_t last = std::min(first + kTileTokens, tokens.size());
    const std::vector<std::int32_t> some(tokens.begin() + first, tokens.begin() + last);
    const bool follow_each_other =
        static_cast<std::size_t>(some.back() - some.front()) + 1 == some.size();
    const PackedKeys tile(decoded, some);
    tile.logits(shape, queries, 0, tile.padded(), scratch.data(), kTileTokens);
    for (std::size_t q = 0; q < queries.size(); ++q) {
      double* from = scratch.data() + q * kTileTokens;
      if (shape.alibi) {
        const auto [head, row] = of_query(q);
        add_alibi(stream_, head, row, some, from);
      }
      double* to = out + static_cast<Index>(q) * shape.tokens;
      if (follow_each_other) {
        std::copy_n(from, some.size(), to + some.front());
        continue;
      }
      for (const std::int32_t token : some) to[token] = *from++;
    }
  }
}

double* WrittenLogits::of_head(int head) {
  const StreamShape& shape = stream_.shape;
  const Index row = at_ - first_;
  return logits_.data() + (row * shape.heads_per_kv + head) * shape.tokens;
}

}  // namespace kvbench
