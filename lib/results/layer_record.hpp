// The record of a whole layer: what journal.jsonl holds per line and results.json per element of
// `layers`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "metrics/layer_metrics.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Evidence that a layer's query heads lost, over the rows that ask.
struct LayerEvidence {
  Index tokens = 0;
  double heads_lost = 0.0;  // share of the layer's query heads that read none of it
  std::vector<Index> lost;  // tokens that no query head reads at the last row that asks, ascending
};

struct LayerResult {
  std::optional<LayerErrors> errors;  // none: the dump has no output projection
  Index peak_bytes = 0;               // bytes of all KV heads, each at its own peak
  Index exact_bytes = 0;
  std::optional<LayerEvidence> evidence;  // none: nothing asks
  double seconds = 0.0;                   // seconds of the projections, the setting's share
};

// `repro`: the command that computes this record and its cells alone.
Json layer_record(const Plan& plan, const PlannedLayerRecord& layer, const LayerResult& result,
                  const std::string& repro);

// One that has no numbers: `status` "failed" or "skipped".
Json empty_layer_record(const Plan& plan, const PlannedLayerRecord& layer, const char* status,
                        const std::string& reason, const std::string& repro);

// Whether a line of a journal is a record of the layer whose id it has, as is_record_of().
bool is_layer_record_of(const Json& record, const Plan& plan, const PlannedLayerRecord& layer);

// Paths of all numbers under `errors`, in the record's order: "relative_output_l2.mean".
const std::vector<std::string>& layer_error_paths();

// Every path of a number of a layer record that a bound or a comparison can name, and those of
// `evidence` among them.
const std::vector<std::string>& layer_metric_paths();
bool is_layer_metric(const std::string& path);

}  // namespace kvbench
