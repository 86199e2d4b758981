// How a tensor's elements lie in its file, and what reading them takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dump/hdf5.hpp"

namespace kvbench {

// What the library holds to read a tensor, in bytes: its chunk cache, and a chunk while that is
// decoded. 0 for other layouts than chunks.
std::uint64_t chunk_bytes(hid_t dataset);

// Rows that a chunk of a tensor spans; 0 for other layouts than chunks.
std::uint64_t chunk_rows(hid_t dataset);

// Why the elements of a dataset cannot be read, or only with memory or time out of all proportion
// to what is stored, and what to do: a sentence without its subject; nullopt where they can. Has
// the library walk through the index of chunks.
std::optional<std::string> unreadable_storage(hid_t dataset);

// Throws hdf5::Error where a chunk with some of these rows is stored in more bytes than its
// elements take though it is compressed: what the library would make of it has no bound.
void refuse_swollen_chunks(hid_t dataset, std::uint64_t head, std::uint64_t row,
                           std::uint64_t count);

// Opens a tensor with the chunk cache that reading it head by head needs.
hdf5::Handle open_for_reading(hid_t parent, const std::string& name,
                              hdf5::Elements elements = hdf5::Elements::kOwn);

}  // namespace kvbench
