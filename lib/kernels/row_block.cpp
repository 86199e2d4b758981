#include "kernels/row_block.hpp"

#include <utility>

namespace kvbench {

RowBlock::RowBlock(const Stream& stream, const Kernels& kernels, std::vector<Index> rows,
                   LogitBlock& room)
    : stream_(stream),
      kernels_(kernels),
      rows_(std::move(rows)),
      held_(kernels.hold_rows(stream, rows_)),
      room_(room) {
  if (!held_) logits();  // by all threads, before any of them waits for it
}

// A table that holds rows computes without this program's other threads: one that waited for them
// could be given another cell meanwhile, which wants the same logits.
const LogitBlock& RowBlock::logits() const {
  std::call_once(on_host_, [&] { kernels_.logits(stream_, rows_, room_); });
  return room_;
}

}  // namespace kvbench
