// The check of a dump's structure: everything but the elements of its tensors.
#pragma once

#include <string>

#include "dump/dump.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {

// Opens `path` for reading. Throws InputError: no such file, not HDF5, truncated, locked.
hdf5::Handle open_dump_file(const std::string& path);

// What the file holds. Throws one InputError with every fault of its structure, each
// "FILE: /place: what; remedy".
DumpInfo read_structure(hid_t file, const std::string& path);

std::string layer_path(const std::string& sequence, int layer);

}  // namespace kvbench
