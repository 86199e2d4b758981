// JSON Schema of `storage`, from the table of codecs.
#pragma once

#include "json/json.hpp"

namespace kvbench {

// Schema of the key `storage` of a sweep file or of an entry: an element or a list of them.
Json storages_schema();
// Schema of one element, which is also what a cell's key has.
Json storage_schema();
// Definitions that these two refer to, by name, for `$defs`.
Json storage_definitions();

}  // namespace kvbench
