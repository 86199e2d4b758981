// The elements of a virtual dataset, which are those of other datasets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "hdf5/source_files.hpp"
#include "hdf5/stored_elements.hpp"

namespace kvbench {

// A tensor that is put together from blocks of tensors in other files (or in its own), read block
// by block. HDF5's own reading of virtual datasets is not used: it looks for files in other
// folders, too, takes those that it cannot open for zeros, and 1.10.8 crashes on a dataset that
// maps itself.
class MappedElements {
 public:
  // Opens all sources of a virtual dataset of rank 3. Throws hdf5::OutsideError for what leads out
  // of the folder, else hdf5::Error with what cannot be read: a source that is not a tensor of the
  // same type with elements of its own, mappings that are not blocks of their sources, that
  // overlap or that leave elements out.
  MappedElements(hid_t dataset, SourceFiles& files);

  // As chunk_bytes(), of all sources together.
  std::uint64_t chunk_bytes() const;

  // Reads the elements of `wanted` in order, as they are stored. Throws hdf5::Error.
  void read(const Block& wanted, std::byte* out) const;

 private:
  struct Part {
    Block target;
    Sizes start;  // of the same block in the source
    const StoredElements* source;
  };

  const StoredElements& source(const std::string& file, const std::string& name,
                               SourceFiles& files);

  hdf5::Handle type_;
  std::map<std::pair<std::string, std::string>, StoredElements> sources_;  // by file and name
  std::vector<Part> parts_;
};

}  // namespace kvbench
