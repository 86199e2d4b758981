// The record of one cell: what journal.jsonl holds per line and results.json per cell.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"
#include "replay/cell_result.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Undefined metrics are null, and so are those that overflowed, which `overflowed` names. A number
// of `memory` that is not finite makes the record `failed` with its name as reason; derived values
// that overflow are null. `repro`: the command that computes this cell alone.
Json cell_record(const Plan& plan, const PlannedCell& cell, const CellResult& result,
                 const std::string& repro);

// A cell whose stream could not be had, or whose computation ended with `reason`.
Json failed_record(const Plan& plan, const PlannedCell& cell, const std::string& reason,
                   const std::string& repro);

// A cell that the plan skips; cell.skip_reason must be set.
Json skipped_record(const Plan& plan, const PlannedCell& cell, const std::string& repro);

// Paths of all numbers under `errors`, in the record's order: "relative_l2.mean".
const std::vector<std::string>& error_paths();

// Members of `trivial`: the names of its answers; the parts of `kappa`; the paths of all its
// numbers, "kappa.median" and "zero.epsilon_spectral.last" among them.
const std::vector<std::string>& trivial_answer_names();
const std::vector<std::string>& kappa_parts();
const std::vector<std::string>& trivial_paths();

// Paths of all numbers under `evidence`, which records of sequences without it lack.
const std::vector<std::string>& evidence_paths();

// Names of all numbers under `memory`, in the record's order.
const std::vector<std::string>& memory_names();

// Paths of all numbers under `traffic`, in the record's order: "tokens_read.mean".
const std::vector<std::string>& traffic_paths();

// {"errors.numerator_error": rows}, and so on.
Json overflowed_json(const std::vector<Overflow>& overflows);

// Names under `counters`, in the record's order.
const std::vector<std::string>& counter_names();
// Whether records of methods that it has no meaning for are without it.
bool counter_is_optional(const std::string& name);

}  // namespace kvbench
