#include "cellfiles/cell_log.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include "system/error.hpp"

namespace kvbench {
namespace {

// Head of a record; id and body follow, then the checksum of all before it.
struct RecordHead {
  std::uint64_t kind = 0;
  std::uint64_t id_bytes = 0;
  std::uint64_t body_bytes = 0;
};

struct Record {
  std::string id;
  std::string body;
  std::int64_t size = 0;  // in the file
};

// The record at `offset`, or nothing if none is whole there. No file has as many bytes as a
// damaged head may ask for.
std::optional<Record> read_whole(const AppendLog& log, std::uint64_t kind, std::int64_t offset) {
  const std::uint64_t rest = log.size() - offset;
  if (rest < sizeof(RecordHead)) return std::nullopt;
  RecordHead head;
  std::memcpy(&head, log.read(offset, sizeof(RecordHead)).data(), sizeof(RecordHead));
  if (head.kind != kind || head.id_bytes > 4096 || head.body_bytes > rest) return std::nullopt;
  const std::uint64_t checked = sizeof(RecordHead) + head.id_bytes + head.body_bytes;
  if (rest < checked + 8) return std::nullopt;
  const std::string bytes = log.read(offset, checked + 8);
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + checked, 8);
  if (checksum != hash64(std::string_view(bytes).substr(0, checked))) return std::nullopt;
  return Record{bytes.substr(sizeof(RecordHead), head.id_bytes),
                bytes.substr(sizeof(RecordHead) + head.id_bytes, head.body_bytes),
                static_cast<std::int64_t>(checked + 8)};
}

Record read_again(const AppendLog& log, std::uint64_t kind, std::int64_t offset,
                  const std::string& path) {
  auto record = read_whole(log, kind, offset);
  if (!record) throw IoError(path + ": was changed while it was being read");
  return std::move(*record);
}

}  // namespace

CellLog::CellLog(const std::string& path, std::uint64_t kind, AppendLog::Access access)
    : path_(path), log_(path, access), kind_(kind) {
  std::int64_t whole = 0;
  while (const auto record = read_whole(log_, kind_, whole)) {
    note(record->id, whole);
    whole += record->size;
  }
  if (access == AppendLog::Access::kWrite) log_.cut(whole);
}

void CellLog::append(const std::string& cell_id, std::string_view body) {
  const RecordHead head{kind_, cell_id.size(), body.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(RecordHead));
  bytes += cell_id;
  bytes += body;
  const std::uint64_t checksum = hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), 8);
  note(cell_id, log_.append(bytes));
}

void CellLog::note(const std::string& cell_id, std::int64_t offset) {
  const auto [place, is_new] = cells_.add(hash128(cell_id));
  if (is_new) {
    offsets_.push_back(offset);
  } else {
    offsets_[place] = offset;
  }
}

std::string CellLog::read(const std::string& cell_id) const {
  const std::size_t place = cells_.find(hash128(cell_id)).value();
  return read_again(log_, kind_, offsets_[place], path_).body;
}

std::string CellLog::id(std::size_t place) const {
  return read_again(log_, kind_, offsets_.at(place), path_).id;
}

}  // namespace kvbench
