#include "cellfiles/rows_journal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "cellfiles/record_bytes.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

constexpr std::uint64_t kRowsKind = 0x3253574f52564b02;

// Kind of records with these columns, in this order: others are not taken for them.
std::uint64_t kind_of(const std::vector<std::string>& columns) {
  return kRowsKind ^ hash64(fmt::format("{}", fmt::join(columns, "\n")));
}

}  // namespace

RowsJournal::RowsJournal(const std::string& path, const std::vector<std::string>& columns,
                         AppendLog::Access access)
    : log_(path, kind_of(columns), access), columns_(columns.size()) {}

void RowsJournal::append(const std::string& cell_id, const CellRows& cell) {
  const std::size_t values = cell.rows.size() * cell.heads_per_kv;
  if (cell.columns.size() != columns_) {
    throw std::logic_error("rows journal: wrong number of columns");
  }
  BytesOut out;
  out.put(cell.heads_per_kv);
  out.put_all(cell.rows);
  for (const std::vector<double>& column : cell.columns) {
    if (column.size() != values) throw std::logic_error("rows journal: wrong number of values");
    out.put_all(column);
  }
  log_.append(cell_id, out.bytes());
}

CellRows RowsJournal::read(const std::string& cell_id) const {
  const std::string bytes = log_.read(cell_id);
  BytesIn in(bytes);
  CellRows cell;
  cell.heads_per_kv = in.take<int>();
  cell.rows = in.take_all<Index>();
  for (std::size_t c = 0; c < columns_; ++c) cell.columns.push_back(in.take_all<double>());
  return cell;
}

}  // namespace kvbench
