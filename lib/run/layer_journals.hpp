// Layers that are run one by one, before their dump is whole and its fingerprint known.
#pragma once

#include <optional>
#include <string>

#include "run/execute.hpp"
#include "sweep/config.hpp"

namespace kvbench {

// Throws one InputError, with all errors, for a sweep whose cells on one layer need more than that
// layer, or whose keys depend on more than the dump's name: algorithms that decide for the whole
// model, cache files of `given`, and output besides results.json.
void require_layer_by_layer(const SweepConfig& config);

// The part of a sweep that is about one layer of one sequence, for a dump that holds nothing else;
// none if the sweep leaves the layer out.
std::optional<SweepConfig> of_layer(SweepConfig config, const std::string& sequence, int layer);

// Appends to the journal of `execution` the records that the journal at `path` has of a dump with
// `fingerprint`, which holds one layer of the dump of the plan, or one and the layers that read its
// keys. Their values are those that the whole dump gives; id, key and `repro` become the plan's.
// A record that the journal of `execution` has with the same status stays as it is. Throws
// InputError as scan_journal().
void take_over(const std::string& path, const std::string& fingerprint, const Execution& execution);

}  // namespace kvbench
