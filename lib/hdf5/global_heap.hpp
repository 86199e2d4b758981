// Texts of variable length, as h5py writes them: an attribute holds references to objects of the
// file's "global heaps". HDF5 1.10.8 believes an object's size while it has made room for
// the length that the reference names: a damaged file has it write beyond its memory, which shows
// later, or never. So the references are taken from it, and what they lead to is read here.
// Source: "HDF5 File Format Specification Version 3.0", III.E (global heap).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hdf5/hdf5.hpp"

namespace kvbench::hdf5 {

// The `count` texts of an attribute of variable-length strings, in a file that is open for reading
// alone; each ends before its first zero byte. Throws Error where they are larger than `most_bytes`
// together, or where the heap does not have them.
std::vector<std::string> read_heap_texts(hid_t attribute, std::size_t count,
                                         std::uint64_t most_bytes);

}  // namespace kvbench::hdf5
