// Results as lines of JSON.
#pragma once

#include <ostream>

#include "results/export_rows.hpp"

namespace kvbench {

// One object per record and line, flat: its members are the columns of flat_row(), with codecs.
// Values have their types, null is null; numbers are as in results.json to the last digit.
void export_jsonl(const VisitRecords& records, std::ostream& out);

}  // namespace kvbench
