// The identity of a dump's content.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dump/dump_info.hpp"
#include "hdf5/first_reading.hpp"
#include "hdf5/hdf5.hpp"

namespace kvbench {

// Dumps whose tensors take fewer bytes are hashed whole, larger ones by samples.
inline constexpr std::uint64_t kHashedWhole = std::uint64_t{1} << 30;

// XXH3-128 as 32 hexadecimal digits over, in this order: every attribute but `created` as sorted
// text, the shapes and element types, and the tensors as stored (after filters, so chunks and
// compression do not matter, and neither do path and time). With
// `hashed_whole` bytes of tensors or more: evenly spaced blocks of rows of every head, a quarter of
// `hashed_whole` in all. A dump that is hashed by tensor has each tensor's own hash in place of its
// elements; that is of samples from a 64th of `hashed_whole` on. Equal heads and zero tokens that
// samples show are looked for in all tokens. Throws InputError for unreadable or non-finite
// elements met on the way.
struct ContentReading {
  std::string fingerprint;
  std::uint64_t hashed_whole = 0;  // as given
  bool sampled = false;            // whether it is of samples
  std::vector<std::string> notes;  // survey_notes() of the layers that have keys and values
  TensorHashes hashes;             // hashes of a dump that is hashed by tensor
};
// Calls `step` before each object and each part of it. `known`: the hashes of all tensors, which
// are not read then; null: they are read.
ContentReading read_content(hid_t file, const DumpInfo& info, std::uint64_t hashed_whole,
                            const Step& step, const TensorHashes* known = nullptr);

// The same, read in a child process first (hdf5/first_reading.hpp). Elements of a file that HDF5
// cannot read thus end the child.
ContentReading read_content_in_child(hid_t file, const DumpInfo& info, std::uint64_t hashed_whole);

// Reads what the fingerprint is made of but the elements of tensors.
// The same errors.
void read_descriptions(hid_t file, const DumpInfo& info, const Step& step);

}  // namespace kvbench
