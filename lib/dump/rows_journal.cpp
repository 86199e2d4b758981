#include "dump/rows_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kMagic = 0x3153574f52564b01;

// Of records with these columns, in this order: others are not taken for them.
std::uint64_t magic_of(const std::vector<std::string>& columns) {
  return kMagic ^ hash64(fmt::format("{}", fmt::join(columns, "\n")));
}

// What a record begins with; the id, rows and columns follow, then the checksum of all before it.
struct Head {
  std::uint64_t magic = 0;
  std::uint64_t id_bytes = 0;
  std::uint64_t group = 0;
  std::uint64_t rows = 0;

  // No file has as many bytes as a damaged head may ask for.
  std::optional<std::int64_t> body_bytes(std::uint64_t expected, std::size_t columns) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 28;
    if (magic != expected || id_bytes > 4096 || group > 65536 || rows > kMost) return std::nullopt;
    return static_cast<std::int64_t>(id_bytes + 8 * rows * (1 + columns * group));
  }
};

IoError fault(const std::string& path, const std::string& what) {
  return IoError(
      fmt::format("{}: cannot {} ({}); check the folder and its free space, and that no other run "
                  "uses it",
                  path, what, errno != 0 ? std::strerror(errno) : "it is damaged"));
}

bool read_bytes(int descriptor, std::int64_t offset, std::int64_t size, char* to) {
  while (size > 0) {
    const ssize_t got = ::pread(descriptor, to, static_cast<std::size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += got;
    size -= got;
  }
  return true;
}

struct Record {
  Head head;
  std::string bytes;  // head, body
};

// The record at `offset`, or nothing where no whole one stands there.
std::optional<Record> read_whole(int descriptor, std::uint64_t magic, std::size_t columns,
                                 std::int64_t offset, std::int64_t end) {
  Record record;
  constexpr auto kHeadBytes = static_cast<std::int64_t>(sizeof(Head));
  if (end - offset < kHeadBytes) return std::nullopt;
  if (!read_bytes(descriptor, offset, kHeadBytes, reinterpret_cast<char*>(&record.head))) {
    return std::nullopt;
  }
  const auto body = record.head.body_bytes(magic, columns);
  if (!body || end - offset < kHeadBytes + *body + 8) return std::nullopt;
  record.bytes.resize(static_cast<std::size_t>(kHeadBytes + *body));
  std::uint64_t checksum = 0;
  if (!read_bytes(descriptor, offset, kHeadBytes + *body, record.bytes.data()) ||
      !read_bytes(descriptor, offset + kHeadBytes + *body, 8, reinterpret_cast<char*>(&checksum)) ||
      checksum != hash64(record.bytes)) {
    return std::nullopt;
  }
  return record;
}

template <class T>
void append_values(std::string& bytes, const std::vector<T>& values) {
  static_assert(sizeof(T) == 8);
  bytes.append(reinterpret_cast<const char*>(values.data()), 8 * values.size());
}

template <class T>
const char* take_values(const char* from, std::uint64_t count, std::vector<T>& values) {
  values.resize(count);
  std::memcpy(values.data(), from, 8 * count);
  return from + 8 * count;
}

}  // namespace

RowsJournal::RowsJournal(const std::string& path, const std::vector<std::string>& columns,
                         Access access)
    : path_(path), columns_(columns.size()), magic_(magic_of(columns)) {
  errno = 0;
  file_.reset(access == Access::kRead ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC)
                                      : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) throw fault(path_, "be opened");
  scan();
  if (access == Access::kRead || ::ftruncate(file_.get(), size_) == 0) return;
  throw fault(path_, "be written");
}

void RowsJournal::scan() {
  const std::int64_t end = ::lseek(file_.get(), 0, SEEK_END);
  while (const auto record = read_whole(file_.get(), magic_, columns_, size_, end)) {
    place_of_[record->bytes.substr(sizeof(Head), record->head.id_bytes)] = size_;
    size_ += static_cast<std::int64_t>(record->bytes.size()) + 8;
  }
}

void RowsJournal::append(const std::string& cell_id, const CellRows& cell) {
  Head head;
  head.magic = magic_;
  head.id_bytes = cell_id.size();
  head.group = static_cast<std::uint64_t>(cell.group);
  head.rows = cell.rows.size();
  if (cell.columns.size() != columns_) {
    throw std::logic_error("rows journal: wrong number of columns");
  }
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(Head));
  bytes += cell_id;
  append_values(bytes, cell.rows);
  for (const std::vector<double>& column : cell.columns) {
    if (column.size() != head.rows * head.group) {
      throw std::logic_error("rows journal: wrong number of values");
    }
    append_values(bytes, column);
  }
  const std::uint64_t checksum = hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), 8);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                                     size_ + static_cast<std::int64_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const IoError full = fault(path_, "be written");
      if (::ftruncate(file_.get(), size_) != 0) throw fault(path_, "be cut back");
      throw full;
    }
    done += static_cast<std::size_t>(written);
  }
  place_of_[cell_id] = size_;
  size_ += static_cast<std::int64_t>(bytes.size());
}

CellRows RowsJournal::read(const std::string& cell_id) const {
  errno = 0;
  const auto record = read_whole(file_.get(), magic_, columns_, place_of_.at(cell_id),
                                 std::numeric_limits<std::int64_t>::max());
  if (!record) throw fault(path_, "be read");
  CellRows cell;
  cell.group = static_cast<int>(record->head.group);
  const char* from = record->bytes.data() + sizeof(Head) + record->head.id_bytes;
  from = take_values(from, record->head.rows, cell.rows);
  cell.columns.resize(columns_);
  for (std::vector<double>& column : cell.columns) {
    from = take_values(from, record->head.rows * record->head.group, column);
  }
  return cell;
}

void RowsJournal::sync() {
  if (::fdatasync(file_.get()) != 0) throw fault(path_, "be written");
}

}  // namespace kvbench
