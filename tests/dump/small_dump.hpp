// Small dumps with known content, and ways to break them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "support/sanitized.hpp"
#include "synth/writer.hpp"

// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Hq 4, Hkv 2, n 12, Nq 7, d 4, dv 6, No 3.
kvbench::LayerLayout small_layout();

// A value that every element type holds exactly, different for neighbours in every direction.
double planted(const std::string& tensor, kvbench::Index head, kvbench::Index row,
               kvbench::Index column);

// Every head of the layer added last, planted.
void write_planted(kvbench::DumpWriter& writer, const kvbench::LayerLayout& layout);

// Sequence "text" with prompt_tokens 5 and token ids, layers 1 and 3 of 4 in the small layout, and
// a root rope group of 4 rotated dimensions.
void write_small_dump(const std::string& path, const kvbench::StorageOptions& storage = {});

// Storage that HDF5 has and DumpWriter does not use, on top of what it does.
struct OtherStorage {
  kvbench::StorageOptions storage;
  bool big_endian = false;
  bool bfloat16_as_float = false;  // a 16-bit HDF5 float in place of uint16 with an attribute
  hsize_t chunk_heads = 1;         // heads that one chunk spans
};
void write_small_dump(const std::string& path, const OtherStorage& storage);

// Opens a written dump for changes.
void edit(const std::string& path, const std::function<void(hid_t file)>& change);

void remove_attribute(hid_t file, const std::string& object, const std::string& name);
template <class T>
void set_attribute(hid_t file, const std::string& object, const std::string& name, const T& value) {
  const kvbench::hdf5::Handle opened(H5Oopen(file, object.c_str(), H5P_DEFAULT));
  if (kvbench::hdf5::has_attribute(opened.get(), name)) H5Adelete(opened.get(), name.c_str());
  kvbench::hdf5::write_attribute(opened.get(), name, value);
}
void remove_link(hid_t file, const std::string& path);
// A dataset of zeros in place of what was there: a hole in the file, which takes no room.
void replace_dataset(hid_t file, const std::string& path, const std::vector<hsize_t>& dims,
                     hid_t type);
// Overwrites one element of a float tensor.
void set_element(hid_t file, const std::string& path, const std::vector<hsize_t>& at, double value);

// The messages of the InputError that `action` throws; none where it throws nothing.
std::vector<std::string> errors_of(const std::function<void()>& action);
// Whether one message contains all of `words`.
bool says(const std::vector<std::string>& messages, const std::vector<std::string>& words);
