// Opening dumps.
#pragma once

#include <cstdint>
#include <string>

#include "hdf5/hdf5.hpp"
#include "system/file.hpp"

namespace kvbench {

// Opens a regular file and locks it against writers for as long as the descriptor is open, as HDF5
// does (flock; HDF5_USE_FILE_LOCKING=FALSE leaves it). A file system without locks is not an error.
// Never blocks: throws InputError for what is not there, for directories, pipes and devices, and
// for a file that another program is writing.
UniqueFd lock_dump_file(const std::string& path);

// State of an open file and its content, as the system records it.
struct FileState {
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t changed_seconds = 0;
  std::int64_t changed_nanoseconds = 0;

  bool operator==(const FileState&) const = default;
};

// State of an open file; throws InputError with `path` if the system does not tell.
FileState state_of(const UniqueFd& file, const std::string& path);
FileState state_of(const hdf5::Handle& file, const std::string& path);

// For a file that is locked by lock_dump_file. Throws InputError: not HDF5, truncated.
hdf5::Handle open_dump_file(const std::string& path);

}  // namespace kvbench
