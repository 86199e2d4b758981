// Opening and creating files.
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "hdf5/hdf5.hpp"
#include "system/file.hpp"

namespace kvbench::hdf5 {
namespace {

// Metadata that is kept in memory, in bytes of the file.
constexpr std::size_t kMaxMetadata = std::size_t{1} << 19;

Handle access_properties(bool locking) {
  Handle properties(H5Pcreate(H5P_FILE_ACCESS));
  check(H5Pset_fclose_degree(properties.get(), H5F_CLOSE_STRONG));
#if H5_VERSION_GE(1, 10, 7)
  // File systems without locks are common on clusters and no reason to fail.
  check(H5Pset_file_locking(properties.get(), locking, true));
#else
  static_cast<void>(locking);
#endif
  return properties;
}

// Whether the library is to lock a file: of the errors of a file system without locks 1.10.8 goes
// on after ENOSYS alone. `flags`: of open(2).
bool can_lock(const std::string& path, int flags) {
  const UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file.is_open() || ::flock(file.get(), LOCK_SH | LOCK_NB) == 0) return true;
  return errno != ENOSYS && errno != ENOLCK && errno != EOPNOTSUPP;
}

void limit(H5AC_cache_config_t& cache, std::size_t most) {
  cache.max_size = most;
  cache.min_size = std::min(cache.min_size, most);
  cache.initial_size = std::min(cache.initial_size, most);
}

// Bytes of a group's names where they are in one piece, as in the oldest format: the piece is read
// anew at every access unless it fits into the cache.
std::size_t bytes_of_names(hid_t group) {
  constexpr std::size_t kName = 64;  // an identity of 32 letters, and what lies round it
  constexpr std::size_t kMaxBytes = std::size_t{32} << 20;
  H5G_info_t info;
  check(H5Gget_info(group, &info));
  if (info.storage_type != H5G_STORAGE_TYPE_SYMBOL_TABLE) return 0;
  return kName * std::min<std::size_t>(info.nlinks, kMaxBytes / kName);
}

}  // namespace

void limit_metadata(hid_t group) {
  const Handle file(H5Iget_file_id(group));
  H5AC_cache_config_t cache;
  cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  check(H5Fget_mdc_config(file.get(), &cache));
  limit(cache, std::max(kMaxMetadata, bytes_of_names(group)));
  check(H5Fset_mdc_config(file.get(), &cache));
}

void suit_millions(hid_t file_access) {
  H5AC_cache_config_t cache;
  cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  check(H5Pget_mdc_config(file_access, &cache));
  limit(cache, kMaxMetadata);
  check(H5Pset_mdc_config(file_access, &cache));
#if H5_VERSION_GE(1, 10, 2)
  check(H5Pset_libver_bounds(file_access, H5F_LIBVER_V18, H5F_LIBVER_V18));
#else
  check(H5Pset_libver_bounds(file_access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
#endif
}

Handle open_file(const std::string& path, Access access) {
  const Session session;
  const Handle properties =
      access_properties(access != Access::kReadUnlocked && can_lock(path, O_RDONLY));
  return Handle(H5Fopen(path.c_str(), access == Access::kReadWrite ? H5F_ACC_RDWR : H5F_ACC_RDONLY,
                        properties.get()));
}

Handle open_image(std::span<const std::byte> image) {
  const Session session;
  const Handle properties = access_properties(false);
  check(H5Pset_fapl_core(properties.get(), std::size_t{1} << 20, false));
  auto* bytes = const_cast<std::byte*>(image.data());
  // The library asks for copies of the image, and is given the image.
  H5FD_file_image_callbacks_t callbacks = {
      .image_malloc = [](std::size_t, H5FD_file_image_op_t, void* data) { return data; },
      .image_memcpy = [](void* to, const void*, std::size_t, H5FD_file_image_op_t,
                         void*) { return to; },
      .image_realloc = [](void*, std::size_t, H5FD_file_image_op_t, void*) -> void* {
        return nullptr;
      },
      .image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; },
      .udata_copy = [](void* data) { return data; },
      .udata_free = [](void*) -> herr_t { return 0; },
      .udata = bytes};
  check(H5Pset_file_image_callbacks(properties.get(), &callbacks));
  check(H5Pset_file_image(properties.get(), bytes, image.size()));
  // The library takes files of one name for one file.
  const std::string name = "image at " + std::to_string(reinterpret_cast<std::uintptr_t>(bytes));
  return Handle(H5Fopen(name.c_str(), H5F_ACC_RDONLY, properties.get()));
}

Handle create_file(const std::string& path, Objects objects) {
  const Session session;
  const Handle properties = access_properties(can_lock(path, O_RDWR | O_CREAT));
  if (objects == Objects::kMillions) suit_millions(properties.get());
  const Handle creation(H5Pcreate(H5P_FILE_CREATE));
  check(H5Pset_obj_track_times(creation.get(), false));
  return Handle(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), properties.get()));
}

}  // namespace kvbench::hdf5
