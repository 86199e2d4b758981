#include "hdf5/open_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

// Whether files are locked, as HDF5 reads the variable.
bool locks_are_wanted() {
  const char* value = std::getenv("HDF5_USE_FILE_LOCKING");
  return value == nullptr || std::string_view(value) != "FALSE";
}

void refuse_other_kinds(const std::string& path, const struct stat& file) {
  if (S_ISDIR(file.st_mode)) {
    throw InputError(path + ": is a directory; name a file in it");
  }
  if (!S_ISREG(file.st_mode)) {
    throw InputError(path + ": is not a regular file; name a dump or a cache file");
  }
}

FileState state_of_descriptor(int descriptor, const std::string& path) {
  struct stat now = {};
  if (::fstat(descriptor, &now) != 0) {
    throw InputError(fmt::format("{}: cannot be read ({})", path, std::strerror(errno)));
  }
  return {now.st_ino, now.st_size, now.st_mtim.tv_sec, now.st_mtim.tv_nsec};
}

}  // namespace

UniqueFd lock_dump_file(const std::string& path) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) == 0) refuse_other_kinds(path, file);
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!opened.is_open()) {
    throw InputError(
        fmt::format("{}: cannot be opened ({}); check the path", path, std::strerror(errno)));
  }
  if (::fstat(opened.get(), &file) == 0) refuse_other_kinds(path, file);
  char byte = 0;
  if (::pread(opened.get(), &byte, 1, 0) < 0) {  // HDF5 takes it for a file of another kind
    throw InputError(fmt::format("{}: cannot be read ({})", path, std::strerror(errno)));
  }
  if (locks_are_wanted() && ::flock(opened.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw InputError(
        path + ": is being written by another program, which has locked it; wait for its end");
  }
  return opened;
}

FileState state_of(const UniqueFd& file, const std::string& path) {
  return state_of_descriptor(file.get(), path);
}

FileState state_of(const hdf5::Handle& file, const std::string& path) {
  void* driver = nullptr;
  if (H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &driver) < 0) {
    throw InputError(fmt::format("{}: cannot be read ({})", path, hdf5::last_error()));
  }
  return state_of_descriptor(*static_cast<const int*>(driver), path);
}

hdf5::Handle open_dump_file(const std::string& path) {
  const hdf5::Session session;
  if (H5Fis_hdf5(path.c_str()) <= 0) {
    throw InputError(path +
                     ": not an HDF5 file; data/README.md shows how dumps and cache files are made");
  }
  try {
    return hdf5::open_file(path, hdf5::Access::kReadUnlocked);
  } catch (const hdf5::Error& error) {
    if (is_newer_format(error)) {
      throw InputError(path + ": " + cannot_open(error));
    }
    throw InputError(fmt::format(
        "{}: HDF5 cannot open it ({}); the file is truncated, damaged or still being written", path,
        error.what()));
  }
}

}  // namespace kvbench
