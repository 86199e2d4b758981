// The JSON document of `kvbench inspect --json`, and the tables that show the same to people.
#pragma once

#include <string>

#include "dump/dump.hpp"
#include "json/json.hpp"
#include "metrics/inspection.hpp"

namespace kvbench {

// Everything but the sequences. Numbers that are not finite become null when it is written.
Json inspection_document(const DumpInfo& info, const std::string& fingerprint,
                         const InspectionOptions& options);
Json sequence_document(const SequenceInfo& sequence);

// The layout of a layer. Its keys query_heads, kv_heads, tokens, query_rows, d, dv and dtype are
// for nothing else in the document.
Json layer_document(const LayerInfo& layer);
Json head_document(int kv_head, const StreamShape& shape, const StreamInspection& inspection);

// Tables on stdout, as wide as its terminal at most.
void print_inspection(const Json& document);

}  // namespace kvbench
