// Opening dumps.
#pragma once

#include <string>

#include "core/file.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {

// Opens a regular file and locks it against writers for as long as the descriptor is open, as HDF5
// does (flock; HDF5_USE_FILE_LOCKING=FALSE leaves it). A file system without locks is not an error.
// Never blocks: throws InputError for what is not there, for directories, pipes and devices, and
// for a file that another program is writing.
UniqueFd lock_dump_file(const std::string& path);

// For a file that is locked by lock_dump_file. Throws InputError: not HDF5, truncated.
hdf5::Handle open_dump_file(const std::string& path);

}  // namespace kvbench
