// Canonical logits of the keys that one cell's codec wrote, where they depend on what the cell
// holds: of a key for many rows at once, before these rows are answered.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.hpp"
#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

class WrittenLogits {
 public:
  // `stream`: of the queries; must live as long.
  explicit WrittenLogits(const Stream& stream) : stream_(stream) {}

  // Rows whose logits are in memory at one time, as many as expect() names at least.
  static Index rows_at_once(const StreamShape& shape);
  // Rows that will be asked for next, ascending. None: the memory is given back.
  void expect(const std::vector<Index>& rows);
  // Goes to `row`, one of them and not before the last. `tokens`, ascending, are written, key j as
  // row j of `decoded`; one that was so at an earlier row of expect() has the same key still.
  void go_to(Index row, const std::vector<std::int32_t>& tokens, ConstMatrix decoded);
  // [n] by token, of the row gone to and a query head: those of the tokens. The others are the
  // caller's to set.
  double* of_head(int head);

 private:
  void begin(std::size_t first);
  void compute(const std::vector<std::int32_t>& tokens, ConstMatrix decoded);

  const Stream& stream_;
  std::vector<Index> rows_;
  std::size_t first_ = 0;  // rows_[first_, last_) have their place in logits_
  std::size_t last_ = 0;
  std::size_t at_ = 0;               // the row gone to
  AlignedDoubles logits_;            // [last_ - first_, heads, n]
  std::vector<std::uint8_t> known_;  // [n] by token: computed for the rows from then on
  std::vector<std::int32_t> unknown_;
};

}  // namespace kvbench
