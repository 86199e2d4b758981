#include "system/record_store.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "system/error.hpp"
#include "system/read_at.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kInMemory = std::size_t{4} << 20;
constexpr std::size_t kAhead = std::size_t{64} << 10;

std::string temporary_folder() {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(ignored);
  return folder.empty() ? "/tmp" : folder.string();
}

}  // namespace

RecordStore::RecordStore(std::string folder) : folder_(std::move(folder)) {}

double RecordStore::most_bytes() { return 2.0 * kInMemory; }

std::size_t RecordStore::add(std::string_view record) {
  offsets_.push_back(in_file_ + buffer_.size());
  buffer_ += record;
  if (buffer_.size() >= kInMemory) flush();
  return offsets_.size() - 1;
}

void RecordStore::flush() {
  if (!file_.is_open()) {
    if (folder_.empty()) folder_ = temporary_folder();
    std::string path = folder_ + "/.kvbench-XXXXXX";
    file_.reset(::mkostemp(path.data(), O_CLOEXEC));
    if (!file_.is_open()) throw IoError(system_error(folder_, "write a temporary file"));
    ::unlink(path.c_str());
  }
  if (!write_fully(file_.get(), buffer_)) {
    throw IoError(system_error(folder_, "write a temporary file"));
  }
  in_file_ += buffer_.size();
  buffer_.clear();
}

std::uint64_t RecordStore::end_of(std::size_t record) const {
  return record + 1 < offsets_.size() ? offsets_[record + 1] : in_file_ + buffer_.size();
}

// Fills `bytes`, all of which are in the file.
void RecordStore::read(std::uint64_t offset, std::string& bytes) const {
  const auto got = read_at(file_.get(), offset, bytes);
  if (got == bytes.size()) return;
  if (got) errno = EIO;
  throw IoError(system_error(folder_, "read a temporary file"));
}

std::string_view RecordStore::Reader::at(std::size_t record) {
  const std::uint64_t begin = store_.offsets_[record];
  const std::size_t size = store_.end_of(record) - begin;
  const bool is_next = record == last_ + 1;
  last_ = record;
  if (begin >= store_.in_file_) {
    return std::string_view(store_.buffer_).substr(begin - store_.in_file_, size);
  }
  const bool is_here = begin >= window_begin_ && begin + size <= window_begin_ + window_.size();
  if (!is_here) {
    const std::uint64_t left = store_.in_file_ - begin;
    const std::size_t bytes = is_next ? std::max(size, kAhead) : size;
    window_.resize(std::min<std::uint64_t>(bytes, left));
    window_begin_ = begin;
    store_.read(begin, window_);
  }
  return std::string_view(window_).substr(begin - window_begin_, size);
}

}  // namespace kvbench
