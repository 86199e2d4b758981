#include "kernels/row_block.hpp"

#include <utility>

#include "kernels/host_rows.hpp"

namespace kvbench {

void BlockRoom::reserve(Index queries, Index tokens) {
  const std::size_t numbers = queries * tokens;
  logits.logits.reserve(numbers);
  logits.exps.reserve(numbers);
  exps.reserve(numbers_abreast(queries, tokens));
}

RowBlock::RowBlock(const Stream& stream, const Kernels& kernels, std::vector<Index> rows,
                   BlockRoom& room)
    : stream_(stream),
      kernels_(kernels),
      rows_(std::move(rows)),
      room_(room),
      resident_(kernels.make_rows_resident(stream, rows_)) {
  if (!resident_) resident_ = rows_on_host(stream, logits(), room.exps);
}

// Where it throws, the next cell that asks tries again.
const LogitBlock& RowBlock::logits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!on_host_) kernels_.logits(stream_, rows_, room_.logits);
  on_host_ = true;
  return room_.logits;
}

}  // namespace kvbench
