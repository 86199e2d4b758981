// The result of one cell.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "metrics/metric_table.hpp"
#include "metrics/trivial_answers.hpp"
#include "replay/evidence_meter.hpp"

namespace kvbench {

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
  Index lookup_bytes = 0;  // part of them: Sketch::lookup when row n - 1 is answered
  // Besides all of these, what a head keeps once: a codec's rotations and tables, and
  // Sketch::lookup's shared numbers and bits when row n - 1 is answered.
  Index shared_bytes = 0;
};

// Reads of a decoder to answer a row, per KV head, over the scored rows: keys, values, weights and
// lookups at their stored width. A method that evicts reads all that it holds.
struct TrafficReport {
  double tokens_read_mean = 0.0;
  Index tokens_read_max = 0;
  double bytes_read_mean = 0.0;
  Index bytes_read_max = 0;
  double fraction = 0.0;  // mean of bytes read over those that exact attention reads at that row
  double density = 0.0;   // mean, over query heads too, of value vectors summed over visible tokens
};

// Exact outputs and a cell's errors, at scored row r and query head g in row r * G + g.
struct CellOutputs {
  std::shared_ptr<const std::vector<double>> exact;  // [R * G, dv], one of all cells of the stream
  std::vector<double> errors;                        // [R * G, dv], answers less exact outputs
};

struct CellResult {
  bool failed = false;
  std::string reason;  // reason of the failure
  Derived derived;
  CellMetrics metrics;
  std::shared_ptr<const TrivialAnswers> trivial;  // trivial answers of the stream; null: not finite
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

}  // namespace kvbench
