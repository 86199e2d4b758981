// Some rows of a stream on their way through the cells of a group.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/resident_rows.hpp"

namespace kvbench {

// Their exponentials stay where the kernel table computes, if it keeps them, and only what cells
// ask of them comes back; logits come to the host once a cell needs them there. Safe from several
// threads.
class RowBlock {
 public:
  // Rows ascending, each with a stored query. `room` takes the host's logits. All that is referred
  // to must live as long.
  RowBlock(const Stream& stream, const Kernels& kernels, std::vector<Index> rows, LogitBlock& room);

  const std::vector<Index>& rows() const { return rows_; }
  const ResidentRows* resident() const {
    return resident_.get();
  }  // null: not kept anywhere but on the host
  const LogitBlock& logits() const;

 private:
  const Stream& stream_;
  const Kernels& kernels_;
  const std::vector<Index> rows_;
  const std::shared_ptr<const ResidentRows> resident_;
  LogitBlock& room_;
  mutable std::mutex mutex_;
  mutable bool on_host_ = false;
};

}  // namespace kvbench
