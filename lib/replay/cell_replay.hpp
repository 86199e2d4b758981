// One cell on its way through the decode rows.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/row_block.hpp"
#include "metrics/error_accumulator.hpp"
#include "metrics/reference.hpp"
#include "metrics/trivial_answers.hpp"
#include "replay/cell_result.hpp"
#include "replay/evidence_meter.hpp"
#include "replay/kept_logits.hpp"
#include "replay/memory_meter.hpp"
#include "replay/replay_cell.hpp"
#include "replay/traffic_meter.hpp"
#include "sketch/estimator.hpp"
#include "storage/cache_view.hpp"
#include "storage/stored_stream.hpp"

namespace kvbench {

class CellReplay {
 public:
  // `stored`: the stream as the cell's storage writes it; null without one.
  CellReplay(const Stream& stream, const ReplaySetting& setting, const ReplayCell& cell,
             const Kernels& kernels, const SharedResults& shared, const Reference& reference,
             const StoredStream* stored);
  // Rows of `block` in order; rows between them are fed unanswered. `decoded`: the same rows'
  // logits of decoded keys, null unless every held key is one.
  void advance(const RowBlock& block, const LogitBlock* decoded);
  // `trivial`: of the stream; null if not finite.
  CellResult finish(const std::shared_ptr<const TrivialAnswers>& trivial);

 private:
  // Feeds what is left of the prompt, if it is not over.
  void end_prompt();
  // The scored rows among those of a block, ascending.
  std::vector<Index> scored_of(const std::vector<Index>& rows) const;
  // The sketch as it answers row `row`.
  void observe(Index row, bool scored);
  // Feeds the unscored rows before `row`, whose memory counts if they are decoded, and `row`.
  void feed_until(Index row);
  // Row `row`, which is number `r` of the block.
  void score(std::size_t r, Index row, const RowBlock& block, Estimator& estimator);
  // Query row of query head `g` at row `row`, which is number `r` of the block and is being scored.
  QueryRow query_row(std::size_t r, Index row, std::size_t g) const;
  // Notes what row `row`, number `r` of the block, holds of the evidence.
  void look_for_evidence(std::size_t r, Index row, const RowBlock& block);
  void take_answers(Estimator& estimator);

  const Stream& stream_;
  const ReplaySetting& setting_;
  const StorageLayout layout_;
  const std::unique_ptr<CacheView> cache_;
  StoredErrors stored_errors_;  // when row n - 1 is answered
  Needs needs_;
  std::unique_ptr<Algorithm> algorithm_;
  const Reference& reference_;
  ErrorAccumulator errors_;
  MemoryMeter memory_;
  TrafficMeter traffic_;
  EvidenceMeter evidence_;
  std::vector<Index> values_summed_;  // values of the row, by query head
  KeptLogits kept_logits_;
  Derived calibrated_;  // whether its calibration file was made from the stream, too
  ReplayWatch* watch_;
  Index next_row_ = 0;  // the next token to feed
  bool prompt_is_over_ = false;
  std::size_t scored_ = 0;  // rows
  Index answered_ = 0;      // rows x query heads
};

}  // namespace kvbench
