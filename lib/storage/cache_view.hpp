// Vectors that an answer reads of a cell's cache: the stream's own, or those that a codec gives
// back.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "sketch/held_vectors.hpp"
#include "sketch/query_row.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

class CacheView {
 public:
  CacheView() = default;
  CacheView(const CacheView&) = delete;
  CacheView& operator=(const CacheView&) = delete;
  virtual ~CacheView() = default;

  // Starts a block; `scored`: those of its rows, ascending, that attended() will be asked for.
  // `decoded`: the logits of StoredStream::held at the block's rows; null unless every key is
  // decoded. Both live until end_block(), which gives back what was made ready.
  virtual void begin_block(const RowBlock& block, const std::vector<Index>& scored,
                           const LogitBlock* decoded) = 0;
  virtual void end_block() = 0;

  // The sketch as it answers decode row `row`; every one from P on, ascending. Throws CellError
  // where a codec cannot write what is held.
  virtual void hold(const Sketch& sketch, Index row) = 0;
  // Makes the vectors of the row held last ready for answers.
  virtual void read(const Sketch& sketch) = 0;

  // Counts of the written vectors among those that the sketch counts as kept.
  virtual const KeptCounts& written() const = 0;
  virtual bool key_is_written(Index token) const = 0;
  virtual bool value_is_written(Index token) const = 0;

  // The stream whose values answers read, and the kernels that read them.
  virtual const Stream& held() const = 0;
  virtual const Kernels& kernels() const = 0;
  // Vectors in place of the sketch's own; null: the sketch's own.
  virtual const HeldVectors* vectors() const = 0;
  // The query of a scored row, the one held last, with the logits that its answer reads. The result
  // refers to memory that stays until the next call.
  virtual QueryRow attended(const QueryRow& query) = 0;

  // Errors of the vectors held now; after read().
  virtual StoredErrors errors(const Sketch& sketch) const = 0;
};

}  // namespace kvbench
