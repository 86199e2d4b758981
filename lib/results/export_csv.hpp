// Results as flat rows.
#pragma once

#include <ostream>

#include "json/json.hpp"

namespace kvbench {

// RFC 4180, a header line first; one row per cell. Columns: id, status, reason, label, storage (as
// the label has it, or float), the key, params.*, storage.keys.* and storage.values.*, derived.*,
// errors.*, trivial.*, mass.*, evidence.*, clusters.final, memory.*, traffic.*, counters.*,
// timing.seconds; memory.compression_ratio is 1 - memory.fraction, as kvpress counts. A column that
// no cell has is left out, null is an empty field. Where a cell has a storage, every cell has
// storage.keys.codec and storage.values.codec.
void export_csv(const Json& results, std::ostream& out);

// The same of the records of whole layers, `layers`: they have no `kv_head`.
void export_layers_csv(const Json& results, std::ostream& out);

}  // namespace kvbench
