// The files that virtual datasets of a dump take their elements from.
#pragma once

#include <map>
#include <string>

#include "hdf5/hdf5.hpp"
#include "hdf5/open_file.hpp"
#include "system/file.hpp"

namespace kvbench {

// Files in the folder of a dump, opened when first asked for, then open and locked against writers
// as long as this object lives. Only plain files with names of their own are opened, no links, so
// that nothing outside of the folder is read.
class SourceFiles {
 public:
  // More are refused: each takes two descriptors.
  static constexpr std::size_t kMost = 256;

  // `dump`: the open file, whose name in itself is "."; `path`: its path without symbolic links.
  SourceFiles(hid_t dump, const std::string& path);

  // The open file `name`. Throws hdf5::OutsideError for a name that leads elsewhere, else
  // hdf5::Error with what keeps it from being opened.
  hid_t open(const std::string& name);

  // Of all files that are open, together.
  std::int64_t bytes() const;

  // The path of a file whose content has changed since it was opened; empty without one.
  std::string changed() const;

 private:
  struct Opened {
    UniqueFd lock;
    hdf5::Handle file;
    FileState state;
  };

  hid_t dump_;
  std::string folder_;
  std::map<std::string, Opened> opened_;  // by name
};

// An open dump.
struct DumpFile {
  hid_t id = H5I_INVALID_HID;
  SourceFiles* sources = nullptr;  // of its virtual datasets; without, these are refused

  hdf5::Elements elements() const {
    return sources == nullptr ? hdf5::Elements::kOwn : hdf5::Elements::kOwnOrMapped;
  }
};

}  // namespace kvbench
