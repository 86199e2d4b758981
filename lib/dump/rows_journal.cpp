#include "dump/rows_journal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <optional>
#include <stdexcept>
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
  std::uint64_t heads_per_kv = 0;
  std::uint64_t rows = 0;

  // No file has as many bytes as a damaged head may ask for.
  std::optional<std::int64_t> body_bytes(std::uint64_t expected, std::size_t columns) const {
    constexpr std::uint64_t kMax = std::uint64_t{1} << 28;
    if (magic != expected || id_bytes > 4096 || heads_per_kv > 65536 || rows > kMax)
      return std::nullopt;
    return static_cast<std::int64_t>(id_bytes + 8 * rows * (1 + columns * heads_per_kv));
  }
};

struct Record {
  Head head;
  std::string bytes;  // head, body

  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size()) + 8; }
};

// The record at `offset`, or nothing if there is no whole one.
std::optional<Record> read_whole(const AppendLog& log, std::uint64_t magic, std::size_t columns,
                                 std::int64_t offset) {
  constexpr auto kHeadBytes = static_cast<std::int64_t>(sizeof(Head));
  const std::int64_t rest = log.size() - offset;
  if (rest < kHeadBytes) return std::nullopt;
  Record record;
  std::memcpy(&record.head, log.read(offset, kHeadBytes).data(), sizeof(Head));
  const auto body = record.head.body_bytes(magic, columns);
  if (!body || rest < kHeadBytes + *body + 8) return std::nullopt;
  record.bytes = log.read(offset, kHeadBytes + *body);
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, log.read(offset + kHeadBytes + *body, 8).data(), 8);
  if (checksum != hash64(record.bytes)) return std::nullopt;
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
                         AppendLog::Access access)
    : path_(path), log_(path, access), columns_(columns.size()), magic_(magic_of(columns)) {
  std::int64_t whole = 0;
  while (const auto record = read_whole(log_, magic_, columns_, whole)) {
    offset_of_[record->bytes.substr(sizeof(Head), record->head.id_bytes)] = whole;
    whole += record->size();
  }
  if (access == AppendLog::Access::kWrite) log_.cut(whole);
}

void RowsJournal::append(const std::string& cell_id, const CellRows& cell) {
  Head head;
  head.magic = magic_;
  head.id_bytes = cell_id.size();
  head.heads_per_kv = static_cast<std::uint64_t>(cell.heads_per_kv);
  head.rows = cell.rows.size();
  if (cell.columns.size() != columns_) {
    throw std::logic_error("rows journal: wrong number of columns");
  }
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(Head));
  bytes += cell_id;
  append_values(bytes, cell.rows);
  for (const std::vector<double>& column : cell.columns) {
    if (column.size() != head.rows * head.heads_per_kv) {
      throw std::logic_error("rows journal: wrong number of values");
    }
    append_values(bytes, column);
  }
  const std::uint64_t checksum = hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), 8);
  offset_of_[cell_id] = log_.append(bytes);
}

CellRows RowsJournal::read(const std::string& cell_id) const {
  const auto record = read_whole(log_, magic_, columns_, offset_of_.at(cell_id));
  if (!record) throw IoError(path_ + ": was changed while it was being read");
  CellRows cell;
  cell.heads_per_kv = static_cast<int>(record->head.heads_per_kv);
  const char* from = record->bytes.data() + sizeof(Head) + record->head.id_bytes;
  from = take_values(from, record->head.rows, cell.rows);
  cell.columns.resize(columns_);
  for (std::vector<double>& column : cell.columns) {
    from = take_values(from, record->head.rows * record->head.heads_per_kv, column);
  }
  return cell;
}

}  // namespace kvbench
