// Gathers what the cells of a layer answered, head by head, into records of the whole layer.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dump/dump.hpp"
#include "metrics/layer_outputs.hpp"
#include "replay/replay.hpp"
#include "results/layer_record.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Some records of one group, in one pass over its KV heads: each in its turn, ascending. Within one
// head cells may come in any order.
class LayerGatherer {
 public:
  // `records`: indices into plan.layer_records, all of one group. Both must live as long.
  LayerGatherer(const Plan& plan, const Dump& dump, std::vector<std::size_t> records);

  // Whether replayed cells are to hand over their outputs.
  bool needs_outputs() const { return group_.hidden > 0; }

  // The result of a cell of one of the records; others are left alone. Takes its outputs.
  void take(std::size_t cell, CellResult& result);
  // All cells of the KV head were taken. Reads the head's part of W_O, a query head at a time; a
  // part that cannot be read fails all records.
  void end_head(int kv_head);

  // Outcome of a record all of whose heads were ended: its numbers, or why there are none.
  struct Outcome {
    std::optional<LayerResult> result;
    std::string failure;
  };
  Outcome outcome(std::size_t record) const;

  // Bytes that gathering `records` records at once takes at most, on `threads` threads.
  static double bytes(const WorkGroup& group, std::size_t records, int threads);

 private:
  struct Gathered {
    std::optional<CellOutputs> outputs;  // outputs of the current KV head
    Index peak_bytes = 0;
    Index exact_bytes = 0;
    bool has_evidence = false;
    Index evidence_tokens = 0;
    Index asked = 0;               // evidence rows x query heads
    Index lost = 0;                // those of them that read none of the evidence
    std::vector<Index> read_last;  // evidence tokens that some head reads at the last evidence row
    std::string failure;
  };

  void project(int kv_head);
  void fail_all(const std::string& reason);
  std::optional<LayerEvidence> evidence_of(const Gathered& gathered) const;

  const Plan& plan_;
  const WorkGroup& group_;
  const Dump& dump_;
  std::vector<std::size_t> records_;
  std::vector<Gathered> gathered_;               // one per element of records_
  std::map<std::size_t, std::size_t> place_of_;  // cell -> index into records_
  std::optional<LayerOutputs> outputs_;
  std::vector<std::optional<double>> residual_;  // per scored row
  double seconds_ = 0.0;
};

}  // namespace kvbench
