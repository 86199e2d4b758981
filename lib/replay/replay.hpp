// Drives one group: replays every cell of a stream against the exact reference, sharing the
// reference and whatever does not depend on a cell's own parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "metrics/metric_table.hpp"
#include "metrics/trivial_answers.hpp"
#include "replay/evidence_meter.hpp"
#include "sketch/answer.hpp"
#include "sketch/sketch.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// Sees what one cell keeps and answers, besides its metrics. Called by one thread at a time; what
// it throws is an exception of the cell.
class ReplayWatch {
 public:
  virtual ~ReplayWatch() = default;

  // The sketch that answers decode row `row`: every row of [P, n) once, ascending, scored or not.
  virtual void kept(Index row, bool scored, const Sketch& sketch) = 0;
  // The answer of query head `g` at scored row number `r`, in ascending order of both.
  virtual void answered(Index r, Index g, const Answer& answer) {
    static_cast<void>(r), static_cast<void>(g), static_cast<void>(answer);
  }
};

// The parameters of a cell, which are those of many: a sweep may have half a million seeds of one
// setting on a KV head.
class CellParams {
 public:
  CellParams() : CellParams(Params{}) {}
  CellParams(Params params)  // NOLINT(google-explicit-constructor)
      : params_(std::make_shared<const Params>(std::move(params))) {}
  CellParams(std::shared_ptr<const Params> params)  // NOLINT(google-explicit-constructor)
      : params_(std::move(params)) {}

  operator const Params&() const { return *params_; }  // NOLINT(google-explicit-constructor)
  const Params* operator->() const { return params_.get(); }

 private:
  std::shared_ptr<const Params> params_;  // not null
};

struct ReplayCell {
  const AlgorithmDescription* algorithm = nullptr;
  CellParams params;
  std::uint32_t seed = 0;
  // Of an algorithm that decides for a layer or the model: what its model work gave.
  const SharedResults* model_results = nullptr;
  ReplayWatch* watch = nullptr;                      // nullptr: no observer
  std::shared_ptr<const Storage> storage = nullptr;  // null: held unquantised
};

// Logits and exponentials in memory at one time, of so many cells; those of one row are, whatever
// they take. A further block of rows costs every cell the same again, and few cells less than it
// takes to fill memory that no cache holds.
inline constexpr std::size_t kFewCells = 8;
constexpr Index most_logit_bytes(std::size_t cells) {
  return Index{cells <= kFewCells ? 64 : 256} << 20;
}

struct ReplaySetting {
  Index prompt = 0;  // P
  // Scored rows, ascending: decode rows [P, n), and of cells without a storage, of algorithms that
  // answer them, rows of the prompt.
  std::vector<Index> rows;
  int element_bytes = 2;  // bytes per number of a key or value in the memory report
  bool keep_row_values = false;
  bool keep_outputs = false;                              // whether results have `outputs`
  std::shared_ptr<const Evidence> evidence = nullptr;     // null: none
  Index logit_bytes = std::numeric_limits<Index>::max();  // less than most_logit_bytes()
};

// Per KV head, counted from the sketch.
struct MemoryReport {
  Index tokens = 0;           // when row n - 1 is answered
  Index tokens_peak = 0;      // the most at any decode row's answer
  Index distinct_tokens = 0;  // when row n - 1 is answered
  Index vectors = 0;          // key vectors + value vectors
  Index numbers = 0;          // numbers of keys and values
  Index bookkeeping = 0;      // further numbers (weights, scores, counts), 4 bytes each
  Index bytes = 0;
  Index peak_bytes = 0;
  Index exact_bytes = 0;   // min(n, W) (d + dv) element_bytes
  double fraction = 0.0;   // peak_bytes / exact_bytes
  bool declared = false;   // bytes and peak_bytes are what the method says, appended tokens aside
  Index lookup_bytes = 0;  // of them, Sketch::lookup when row n - 1 is answered
  // Besides all of these, what a head keeps once: a codec's rotations and tables, and
  // Sketch::lookup's shared numbers and bits when row n - 1 is answered.
  Index shared_bytes = 0;
};

// What a decoder reads to answer a row, per KV head, over the scored rows: keys, values, weights
// and lookups at their stored width. A method that evicts reads all that it holds.
struct TrafficReport {
  double tokens_read_mean = 0.0;
  Index tokens_read_max = 0;
  double bytes_read_mean = 0.0;
  Index bytes_read_max = 0;
  double fraction = 0.0;  // mean of bytes read over those that exact attention reads at that row
  double density = 0.0;   // mean, over query heads too, of value vectors summed over visible tokens
};

// What a cell answered besides the exact outputs, at scored row r and query head g in row r * G +
// g.
struct CellOutputs {
  std::shared_ptr<const std::vector<double>> exact;  // [R * G, dv], one of all cells of the stream
  std::vector<double> errors;                        // [R * G, dv], answers less exact outputs
};

struct CellResult {
  bool failed = false;
  std::string reason;  // of the failure
  Derived derived;
  CellMetrics metrics;
  std::shared_ptr<const TrivialAnswers> trivial;  // of the stream; null: not finite
  std::optional<Clusters> clusters;
  MemoryReport memory;
  TrafficReport traffic;
  Counters counters;
  Index undefined_rows = 0;         // rows x query heads left out of at least one metric
  std::vector<Overflow> overflows;  // metrics that are null because of it
  double seconds = 0.0;
  std::optional<RowValues> row_values;
  std::optional<CellOutputs> outputs;
  std::optional<EvidenceReport> evidence;  // none unless a scored row asks for some
};

struct ReplayTiming {
  double reference_seconds = 0.0;
  double shared_seconds = 0.0;   // work that several cells share
  double metrics_seconds = 0.0;  // trivial answers
};

// Calls `done(cell index, result)` for each cell as it finishes, one call at a time, in no
// particular order. A cell that throws CellError, or runs out of memory, is reported as failed; the
// others go on. A DeviceError, and whatever `done` throws, end the replay as they are; any other
// exception of a cell is a bug and ends it with a BugError. Throws Stopped (system/stop.hpp) soon
// after a stop was requested. Cells not reported by then are not done.
ReplayTiming replay(const Stream& stream, const ReplaySetting& setting,
                    const std::vector<ReplayCell>& cells, const Kernels& kernels,
                    const std::function<void(std::size_t, CellResult&&)>& done);

}  // namespace kvbench
