// Why cells and records of whole layers have no numbers, on standard error: reasons once each, the
// first few.
#pragma once

#include "results/journal.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

void log_failures(const Plan& plan, const Journal& journal);
// Why nothing was computed, with --quiet as well.
void log_skips(const Plan& plan, const ShardSelection& selection);
// Logs the layer records that failed though no cell did.
void log_layer_failures(const Plan& plan, const Journal& journal);

}  // namespace kvbench
