// How a tensor's elements lie in its file, and what reading them takes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hdf5/hdf5.hpp"

namespace kvbench {

// Sizes of at most three dimensions, with leading ones of 1 where there are fewer.
using Sizes = std::array<hsize_t, 3>;

// Bytes held to read a tensor: chunks that are kept, and one while that is decoded. 0 for other
// layouts than chunks.
std::uint64_t chunk_bytes(hid_t dataset);

// Rows that a chunk of a tensor spans; 0 for other layouts than chunks.
std::uint64_t chunk_rows(hid_t dataset);

// Why the elements of a dataset cannot be read, and what to do: a sentence without its subject;
// nullopt where they can. Has the library walk through the index of chunks.
std::optional<std::string> unreadable_storage(hid_t dataset);

Sizes sizes_of(const std::vector<std::uint64_t>& dims);

// Opens a tensor with the chunk cache that reading it head by head needs.
hdf5::Handle open_for_reading(hid_t parent, const std::string& name);

}  // namespace kvbench
