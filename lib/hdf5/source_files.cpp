#include "hdf5/source_files.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace kvbench {
namespace {

void refuse_outside(const std::string& name) {
  if (name.empty() || name == ".." || name.find('/') != std::string::npos) {
    throw hdf5::OutsideError(fmt::format(
        "takes elements from '{}', which is not the name of a file in the dump's folder", name));
  }
  if (name.find('%') != std::string::npos) {
    throw hdf5::Error(fmt::format(
        "takes elements from '{}', a pattern of names; map each file by its own name", name));
  }
}

}  // namespace

SourceFiles::SourceFiles(hid_t dump, const std::string& path)
    : dump_(dump), folder_(std::filesystem::path(path).parent_path()) {}

hid_t SourceFiles::open(const std::string& name) {
  if (name == ".") return dump_;
  const auto found = opened_.find(name);
  if (found != opened_.end()) return found->second.file.get();
  refuse_outside(name);
  const std::string path = folder_ + "/" + name;
  std::error_code problem;
  if (std::filesystem::is_symlink(path, problem)) {
    throw hdf5::OutsideError(fmt::format(
        "takes elements from '{}', which is a symbolic link and may lead out of the dump's folder",
        name));
  }
  if (opened_.size() == kMost) {
    throw hdf5::Error(fmt::format(
        "takes elements from more than {} files; join them, e.g. a file per layer", kMost));
  }
  try {
    Opened source;
    source.lock = lock_dump_file(path);
    source.file = open_dump_file(path);
    source.state = state_of(source.file, path);
    if (source.state.inode != state_of(source.lock, path).inode) {
      throw InputError(path + ": was replaced while it was opened; rerun");
    }
    return opened_.emplace(name, std::move(source)).first->second.file.get();
  } catch (const InputError& error) {
    throw hdf5::Error(fmt::format("takes elements from {}", error.what()));
  }
}

std::int64_t SourceFiles::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, source] : opened_) bytes += source.state.size;
  return bytes;
}

std::string SourceFiles::changed() const {
  for (const auto& [name, source] : opened_) {
    const std::string path = folder_ + "/" + name;
    if (!(state_of(source.file, path) == source.state)) return path;
  }
  return {};
}

}  // namespace kvbench
