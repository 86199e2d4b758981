// Content of a cache file, for `kvbench inspect`.
#pragma once

#include "core/kept_cache.hpp"
#include "json/document.hpp"

namespace kvbench {

// One entry per KV head: how many rows, of how many tokens, with which weights and lifetimes.
Json cache_document(const KeptCache& cache);

// The same as a table on stdout.
void print_cache(const Json& document);

}  // namespace kvbench
