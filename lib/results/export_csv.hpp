// Results as comma-separated values.
#pragma once

#include <ostream>

#include "results/export_rows.hpp"

namespace kvbench {

// RFC 4180, a header line first; one row per record, the columns of flat_row(); a column that no
// record has is left out, null is an empty field. Where a record has a storage, every one has
// storage.keys.codec and storage.values.codec. Visits the records twice, first for their columns.
void export_csv(const VisitRecords& records, std::ostream& out);

}  // namespace kvbench
