#include "kernels/row_block.hpp"

#include <utility>

namespace kvbench {

RowBlock::RowBlock(const Stream& stream, const Kernels& kernels, std::vector<Index> rows,
                   LogitBlock& room)
    : stream_(stream),
      kernels_(kernels),
      rows_(std::move(rows)),
      resident_(kernels.make_rows_resident(stream, rows_)),
      room_(room) {
  if (!resident_) logits();  // eagerly, so that threads do not serialise on the first request
}

// Where it throws, the next cell that asks tries again.
const LogitBlock& RowBlock::logits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!on_host_) kernels_.logits(stream_, rows_, room_);
  on_host_ = true;
  return room_;
}

}  // namespace kvbench
