// The program's algorithms and metrics, as documents and in words.
#pragma once

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "json/json.hpp"
#include "storage/codec.hpp"

namespace kvbench {

const char* kind_name(Parameter::Kind kind);         // "integer", "tokens", ..
std::string range_text(const Parameter& parameter);  // ">= 1, or a fraction of the prompt"

// Those named, by id or alias; all if none is. Throws InputError for a name that no algorithm has.
std::vector<const AlgorithmDescription*> algorithms_named(const std::vector<std::string>& names);

// The same of codecs, by id.
std::vector<const CodecDescription*> codecs_named(const std::vector<std::string>& names);

// An array with an object per algorithm, codec or metric, in the order of their tables: what
// `kvbench list WHAT --json` prints.
Json algorithms_document(const std::vector<std::string>& names = {});
Json storage_document(const std::vector<std::string>& names = {});
Json metrics_document();

}  // namespace kvbench
