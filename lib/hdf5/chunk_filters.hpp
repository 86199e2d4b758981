// What was done to a chunk of a dataset before it was stored, undone within room that is known.
//
// HDF5 has the same for itself, but grows its room until all of a gzip stream is decoded, up to
// 1032 times what is stored, and reads beyond it where less comes out than the chunk has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvbench {

// HDF5's filters deflate (a zlib stream), shuffle (the first bytes of all elements, then the second
// bytes, ..) and fletcher32 (a checksum of four bytes behind what it is of).
enum class FilterKind { kGzip, kShuffle, kChecksum };

struct ChunkFilter {
  FilterKind kind = FilterKind::kGzip;
  std::size_t element_bytes = 1;  // kShuffle: what it takes for one element
};

// Undoes `filters`, which were applied in this order, except those whose bit is set in `left_out`.
// Throws hdf5::Error unless exactly `bytes` come out; no more is ever decoded.
std::vector<std::byte> decode_chunk(const std::vector<ChunkFilter>& filters, std::uint32_t left_out,
                                    std::vector<std::byte> stored, std::size_t bytes);

}  // namespace kvbench
