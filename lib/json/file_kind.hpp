// The kind of a file that was named instead of another, for the message that refuses it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "json/json.hpp"

namespace kvbench {

// Throws InputError if `text`, the beginning of `path`, is that of an HDF5 file. `wanted` says
// what to name instead: "--config names a sweep file (JSON)".
void refuse_hdf5(std::string_view text, const std::string& path, const std::string& wanted);

// "a sweep file", "a bounds file", "a results file", "a journal" or "an inspection", by what only
// such a document has; nothing if it is none of them.
std::optional<std::string> kind_of_document(const nlohmann::json& document);

// Throws InputError if `document`, read from `path`, is of a kind that is not `kind`.
void refuse_other_kind(const nlohmann::json& document, const std::string& kind,
                       const std::string& path, const std::string& wanted);

// Kinds of files that the program writes.
enum class WrittenKind { kResults, kHdf5 };

// Throws InputError where there is a file at `path` that is not empty and of another kind, going by
// its beginning: what was meant to be replaced is another file then.
void refuse_to_replace(const std::string& path, WrittenKind kind);

}  // namespace kvbench
