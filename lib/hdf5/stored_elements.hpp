// The elements of one dataset of a file, read block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hdf5/chunks.hpp"
#include "hdf5/hdf5.hpp"

namespace kvbench {

// A block of a dataset: rows of heads and columns that follow each other. With fewer than three
// dimensions the first ones are [0, 1).
struct Block {
  Sizes start{};
  Sizes size{};

  hsize_t elements() const { return size[0] * size[1] * size[2]; }
};

// A dataset of at most three dimensions that passed unreadable_storage().
class StoredElements {
 public:
  explicit StoredElements(hdf5::Handle dataset);

  Block all() const { return {{}, size_}; }

  // The elements of `wanted` as they are stored, without gaps. Throws hdf5::Error.
  void read(const Block& wanted, std::byte* out) const { read_as(type_.get(), wanted, out); }
  // The same as numbers of a type of the machine.
  void read_as(hid_t memory_type, const Block& wanted, void* out) const;

 private:
  hdf5::Handle dataset_;
  hdf5::Handle space_;
  hdf5::Handle type_;
  std::size_t rank_ = 0;
  Sizes size_{};
};

// All elements of a dataset of numbers, in order.
std::vector<double> all_doubles(hdf5::Handle dataset);
std::vector<std::int64_t> all_integers(hdf5::Handle dataset);

}  // namespace kvbench
