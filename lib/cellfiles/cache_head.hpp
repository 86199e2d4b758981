// The group of one KV head in a cache file: names, checks, and the rows themselves.
#pragma once

#include <string>

#include "core/kept_cache.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

namespace kvbench {

std::string cache_head_path(const StreamId& id);

// Reads the group, except the elements of its datasets; errors are collected. `location`: its path
// in the file.
KeptHead check_cache_head(ErrorList& errors, hid_t group, const std::string& location);

// Its rows. Errors in them are collected, the first of each kind by its row.
KeptRows read_kept_rows(ErrorList& errors, hid_t group, const std::string& location);

// The head with what its rows say of it: how many tokens and query heads there must be.
void complete(KeptHead& head, const KeptRows& kept);

// All that decides numbers, however it is stored.
void add_to_hash(Hash128& hash, const KeptHead& head, const KeptRows& kept);

// The datasets and attributes of `kept`, those at their defaults left out.
void write_cache_head(hid_t group, const StreamShape& shape, const KeptRows& kept);

}  // namespace kvbench
