// Some rows of a stream on their way through the cells of a group.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/resident_rows.hpp"
#include "numerics/aligned.hpp"

namespace kvbench {

// Where a block's numbers lie on the host, to be used again by the next one.
struct BlockRoom {
  static constexpr Index kBytes = 3 * sizeof(double);  // per query and token

  // Makes room for a block of so many queries (R * G) that see tokens up to `tokens`.
  void reserve(Index queries, Index tokens);

  LogitBlock logits;
  UnfilledDoubles exps;  // as answers read them (kernels/host_rows.hpp)
};

// Their exponentials stay where the kernel table computes, if it keeps them, else on the host; and
// only what cells ask of them comes back. Logits come to the host once a cell needs them there.
// Safe from several threads.
class RowBlock {
 public:
  // Rows ascending, each with a stored query. All that is referred to must live as long.
  RowBlock(const Stream& stream, const Kernels& kernels, std::vector<Index> rows, BlockRoom& room);

  const std::vector<Index>& rows() const { return rows_; }
  const ResidentRows& resident() const { return *resident_; }
  const LogitBlock& logits() const;

 private:
  const Stream& stream_;
  const Kernels& kernels_;
  const std::vector<Index> rows_;
  BlockRoom& room_;
  std::shared_ptr<const ResidentRows> resident_;
  mutable std::mutex mutex_;
  mutable bool on_host_ = false;
};

}  // namespace kvbench
