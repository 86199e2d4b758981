// The JSON document of `kvbench inspect --json`, and the tables that show the same to people.
#pragma once

#include <cstdio>
#include <string>

#include "dump/dump.hpp"
#include "json/json.hpp"
#include "metrics/inspection.hpp"

using OrderedJson = nlohmann::ordered_json;

// Everything but the sequences. Numbers that are not finite become null when it is written.
OrderedJson inspection_document(const kvbench::DumpInfo& info, const std::string& fingerprint,
                                const kvbench::InspectionOptions& options);
OrderedJson sequence_document(const kvbench::SequenceInfo& sequence);

// The layout of a layer. Its keys query_heads, kv_heads, tokens, query_rows, d, dv and dtype stand
// for nothing else in the document.
OrderedJson layer_document(const kvbench::LayerInfo& layer);
OrderedJson head_document(int kv_head, const kvbench::StreamShape& shape,
                          const kvbench::StreamInspection& inspection);

void print_inspection(const OrderedJson& document, std::FILE* out);
