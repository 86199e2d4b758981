#include "cellfiles/kept_journal.hpp"

#include "cellfiles/record_bytes.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kKeptKind = 0x3254504b564b02 ^ (sizeof(KeptRow) << 56);

}  // namespace

KeptJournal::KeptJournal(const std::string& path, AppendLog::Access access)
    : log_(path, kKeptKind, access) {}

void KeptJournal::append(const std::string& cell_id, const KeptRows& kept) {
  BytesOut out;
  out.put(kept.prompt);
  out.put(kept.bytes.value_or(-1));
  out.put(kept.appends);
  out.put(kept.reads_future);
  out.put_all(kept.rows);
  out.put_all(kept.keys);
  out.put_all(kept.values);
  out.put_all(kept.further_numbers);
  log_.append(cell_id, out.bytes());
}

KeptRows KeptJournal::read(const std::string& cell_id) const {
  const std::string bytes = log_.read(cell_id);
  BytesIn in(bytes);
  KeptRows kept;
  kept.prompt = in.take<Index>();
  const auto declared = in.take<Index>();
  if (declared >= 0) kept.bytes = declared;
  kept.appends = in.take<bool>();
  kept.reads_future = in.take<bool>();
  kept.rows = in.take_all<KeptRow>();
  kept.keys = in.take_all<double>();
  kept.values = in.take_all<double>();
  kept.further_numbers = in.take_all<Index>();
  return kept;
}

}  // namespace kvbench
