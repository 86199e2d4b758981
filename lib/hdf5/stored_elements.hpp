// The elements of one dataset of a file, read block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "hdf5/chunks.hpp"
#include "hdf5/hdf5.hpp"

namespace kvbench {

// A block of a dataset: rows of heads and columns that follow each other. Of fewer than three
// dimensions the first ones are [0, 1).
struct Block {
  Sizes start{};
  Sizes size{};

  hsize_t elements() const { return size[0] * size[1] * size[2]; }
};

// Where the elements of a block go: to `start` in an array of shape `size`.
struct Destination {
  std::byte* elements = nullptr;
  Sizes size{};
  Sizes start{};
};

// A dataset of at most three dimensions that passed unreadable_storage(). Chunks with filters are
// read as they are stored and decoded here (chunk_filters.hpp), others by the library. Not for
// several threads at once: decoded chunks are kept.
class StoredElements {
 public:
  explicit StoredElements(hdf5::Handle dataset);

  hid_t id() const { return dataset_.get(); }
  const Sizes& size() const { return size_; }
  Block all() const { return {{}, size_}; }

  // As they are stored. Throws hdf5::Error.
  void read(const Block& wanted, const Destination& to) const;
  // As `wanted` has them, without gaps.
  void read(const Block& wanted, std::byte* out) const { read(wanted, {out, wanted.size, {}}); }
  // The same as numbers of a type of the machine.
  void read_as(hid_t memory_type, const Block& wanted, void* out) const;

 private:
  const std::vector<std::byte>& chunk_at(const Sizes& start) const;
  void copy_shared(const std::vector<std::byte>& chunk, const Sizes& at, const Block& wanted,
                   const Destination& to) const;
  void read_by_library(hid_t memory_type, const Block& wanted, const Destination& to) const;

  const std::optional<FilteredChunks>& chunks() const;

  hdf5::Handle dataset_;
  hdf5::Handle space_;
  hdf5::Handle type_;
  std::size_t element_bytes_ = 0;
  std::size_t rank_ = 0;
  Sizes size_{};
  mutable bool asked_ = false;  // for chunks_: many datasets are opened and not read
  mutable std::optional<FilteredChunks> chunks_;
  mutable std::map<Sizes, std::vector<std::byte>> kept_;  // by their first element
  mutable std::deque<Sizes> order_;                       // in which they were decoded
};

// All elements of a dataset of numbers, in order.
std::vector<double> all_doubles(hdf5::Handle dataset);
std::vector<std::int64_t> all_integers(hdf5::Handle dataset);

}  // namespace kvbench
