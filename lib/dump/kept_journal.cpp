#include "dump/kept_journal.hpp"

#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kMagic = 0x3154504b564b02 ^ (sizeof(KeptRow) << 56);

// What a record begins with; id, rows, keys, values and further numbers follow, then the checksum
// of all before it.
struct Head {
  std::uint64_t magic = kMagic;
  std::uint64_t id_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t keys = 0;
  std::uint64_t values = 0;
  std::uint64_t further_numbers = 0;
  std::int64_t prompt = 0;
  std::int64_t bytes = -1;
  std::uint32_t appends = 0;
  std::uint32_t reads_future = 0;

  // No file has as many bytes as a damaged head may ask for.
  std::optional<std::int64_t> body_bytes() const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
    for (const std::uint64_t count : {rows, keys, values, further_numbers}) {
      if (count > kMost) return std::nullopt;
    }
    if (magic != kMagic || id_bytes > 4096) return std::nullopt;
    return static_cast<std::int64_t>(id_bytes + sizeof(KeptRow) * rows +
                                     8 * (keys + values + further_numbers));
  }
};
static_assert(std::is_trivially_copyable_v<KeptRow> && std::is_trivially_copyable_v<Head>);

struct Record {
  Head head;
  std::string bytes;  // head, body
};

std::optional<Record> read_whole(const AppendLog& log, std::int64_t offset) {
  constexpr auto kHeadBytes = static_cast<std::int64_t>(sizeof(Head));
  const std::int64_t rest = log.size() - offset;
  if (rest < kHeadBytes) return std::nullopt;
  Record record;
  std::memcpy(&record.head, log.read(offset, kHeadBytes).data(), sizeof(Head));
  const auto body = record.head.body_bytes();
  if (!body || rest < kHeadBytes + *body + 8) return std::nullopt;
  record.bytes = log.read(offset, kHeadBytes + *body);
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, log.read(offset + kHeadBytes + *body, 8).data(), 8);
  if (checksum != hash64(record.bytes)) return std::nullopt;
  return record;
}

template <class T>
void append_all(std::string& bytes, const std::vector<T>& values) {
  if (values.empty()) return;
  bytes.append(reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size());
}

template <class T>
const char* take_all(const char* from, std::uint64_t count, std::vector<T>& values) {
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), from, sizeof(T) * count);
  return from + sizeof(T) * count;
}

}  // namespace

KeptJournal::KeptJournal(const std::string& path, AppendLog::Access access)
    : path_(path), log_(path, access) {
  std::int64_t whole = 0;
  while (const auto record = read_whole(log_, whole)) {
    offset_of_[record->bytes.substr(sizeof(Head), record->head.id_bytes)] = whole;
    whole += static_cast<std::int64_t>(record->bytes.size()) + 8;
  }
  if (access == AppendLog::Access::kWrite) log_.cut(whole);
}

void KeptJournal::append(const std::string& cell_id, const KeptRows& kept) {
  const Head head{.id_bytes = cell_id.size(),
                  .rows = kept.rows.size(),
                  .keys = kept.keys.size(),
                  .values = kept.values.size(),
                  .further_numbers = kept.further_numbers.size(),
                  .prompt = kept.prompt,
                  .bytes = kept.bytes.value_or(-1),
                  .appends = kept.appends ? 1U : 0U,
                  .reads_future = kept.reads_future ? 1U : 0U};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(Head));
  bytes += cell_id;
  append_all(bytes, kept.rows);
  append_all(bytes, kept.keys);
  append_all(bytes, kept.values);
  append_all(bytes, kept.further_numbers);
  const std::uint64_t checksum = hash64(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), 8);
  offset_of_[cell_id] = log_.append(bytes);
}

KeptRows KeptJournal::read(const std::string& cell_id) const {
  const auto record = read_whole(log_, offset_of_.at(cell_id));
  if (!record) throw IoError(path_ + ": was changed while it was being read");
  const Head& head = record->head;
  KeptRows kept;
  kept.prompt = head.prompt;
  if (head.bytes >= 0) kept.bytes = head.bytes;
  kept.appends = head.appends != 0;
  kept.reads_future = head.reads_future != 0;
  const char* from = record->bytes.data() + sizeof(Head) + head.id_bytes;
  from = take_all(from, head.rows, kept.rows);
  from = take_all(from, head.keys, kept.keys);
  from = take_all(from, head.values, kept.values);
  take_all(from, head.further_numbers, kept.further_numbers);
  return kept;
}

}  // namespace kvbench
