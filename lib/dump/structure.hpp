// The check of a dump's structure: everything but the elements of its tensors.
#pragma once

#include <cstdint>
#include <string>

#include "dump/dump_info.hpp"
#include "hdf5/first_reading.hpp"
#include "hdf5/hdf5.hpp"
#include "system/memory_limit.hpp"

namespace kvbench {

struct StructureReading {
  // Memory of the process that will read the tensors: the first reading's child has a limit of its
  // own.
  std::uint64_t memory = usable_memory();
  std::uint64_t chunk_memory = usable_memory();  // bytes that decoding a layer's chunks may take
  Step step = [] {};                             // called before each sequence and layer
  bool is_outline = false;                       // tensors have shapes and no elements
};

// Content of the file. Throws one InputError with every error of its structure, each
// "FILE: /place: what; remedy".
DumpInfo read_structure(hid_t file, const std::string& path, const StructureReading& reading);

std::string layer_path(const std::string& sequence, int layer);

}  // namespace kvbench
