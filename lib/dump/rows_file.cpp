#include "dump/rows_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

IoError unwritable(const std::string& path, const std::string& why) {
  return IoError(
      fmt::format("{}: cannot be written ({}); check the folder and its free space, and that no "
                  "other run uses it",
                  path, why));
}

std::string unreadable(const std::string& path, const std::string& why) {
  return fmt::format("{}: cannot be read ({}); run the sweep that wrote it again", path, why);
}

std::string journal_of(const std::string& path) { return path + ".journal"; }

bool has_cell(hid_t file, const Names& columns, const std::string& cell_id) {
  try {
    if (hdf5::kind_of(file, cell_id) != hdf5::Kind::kGroup) return false;
    const hdf5::Handle cell = hdf5::open_group(file, cell_id);
    for (const std::string& column : columns) {
      if (hdf5::kind_of(cell.get(), column) != hdf5::Kind::kDataset) return false;
    }
    return hdf5::kind_of(cell.get(), "rows") == hdf5::Kind::kDataset;
  } catch (const hdf5::Error&) {
    return false;  // damaged
  }
}

void write_cell(hid_t file, const Names& columns, const std::string& cell_id,
                const CellRows& cell) {
  const std::uint64_t rows = cell.rows.size();
  const auto heads = static_cast<std::uint64_t>(cell.heads_per_kv);
  if (cell.columns.size() != columns.size()) {
    throw std::logic_error("rows file: wrong number of columns");
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (cell.columns[c].size() != rows * heads) {
      throw std::logic_error("rows file: wrong number of " + columns[c]);
    }
  }
  const hdf5::Handle group = hdf5::create_group(file, cell_id);
  hdf5::write_dataset(group.get(), "rows", {rows}, cell.rows.data());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    hdf5::write_dataset(group.get(), columns[c], {heads, rows}, cell.columns[c].data());
  }
}

// The dataset's extent; `values` as the file has them.
template <class T>
std::vector<std::uint64_t> read_dataset(hid_t parent, const char* name, hid_t type,
                                        std::vector<T>& values) {
  const hdf5::Handle dataset(H5Dopen2(parent, name, H5P_DEFAULT));
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
  hdf5::check(H5Dread(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return hdf5::extent(space.get());
}

CellRows read_cell(hid_t file, const Names& columns, const std::string& cell_id) {
  CellRows cell;
  const hdf5::Handle group = hdf5::open_group(file, cell_id);
  read_dataset(group.get(), "rows", H5T_NATIVE_INT64, cell.rows);
  for (const std::string& column : columns) {
    const auto extent =
        read_dataset(group.get(), column.c_str(), H5T_NATIVE_DOUBLE, cell.columns.emplace_back());
    if (extent.size() != 2 || extent[1] != cell.rows.size()) {
      throw hdf5::Error(cell_id + " has columns of another length");
    }
    cell.heads_per_kv = static_cast<int>(extent[0]);
  }
  return cell;
}

CellRows read_stored(const std::string& path, hid_t file, const Names& columns,
                     const std::string& cell_id) {
  try {
    return read_cell(file, columns, cell_id);
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(path, error.what()));
  }
}

// HDF5 takes a lock for damage: its message alone tells them apart.
void refuse_locked(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.is_open() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(path + ": cannot read: another program has it open for writing; close it there");
  }
}

hdf5::Handle open_rows(const std::string& path) {
  hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kRead);
  hdf5::children(file.get());
  return file;
}

}  // namespace

void write_rows_file(const std::string& path, const std::vector<std::string>& columns,
                     const std::vector<std::string>& cell_ids,
                     const std::function<CellRows(const std::string&)>& read) {
  const hdf5::Session session;
  const std::string temporary = path + ".tmp";
  try {
    {
      const hdf5::Handle file = hdf5::create_file(temporary);
      for (const std::string& id : cell_ids) write_cell(file.get(), columns, id, read(id));
      hdf5::check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
    }
    replace_file(temporary, path);
  } catch (const hdf5::Error& error) {
    std::remove(temporary.c_str());
    throw unwritable(path, error.what());
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
}

RowsFile::RowsFile(std::string path, Names columns)
    : path_(std::move(path)), columns_(std::move(columns)) {
  const std::string folder = fs::absolute(path_).parent_path().string();
  if (::access(folder.c_str(), W_OK) != 0) throw unwritable(path_, std::strerror(errno));
  if (file_exists(journal_of(path_))) start();
  if (!file_exists(path_)) return;
  refuse_locked(path_);
  const hdf5::Session session;
  try {
    const hdf5::Handle file = open_rows(path_);
    for (std::string& id : hdf5::children(file.get())) {
      if (has_cell(file.get(), columns_, id)) in_file_.insert(std::move(id));
    }
  } catch (const hdf5::Error& error) {
    const std::string damaged = path_ + ".damaged";
    if (std::rename(path_.c_str(), damaged.c_str()) != 0) throw unwritable(path_, error.what());
    was_damaged_ = true;
  }
}

const std::string& RowsFile::start() {
  if (!journal_) {
    journal_path_ = journal_of(path_);
    journal_.emplace(journal_path_, columns_, AppendLog::Access::kWrite);
  }
  return journal_path_;
}

void RowsFile::write(const std::string& cell_id, const CellRows& rows) {
  start();
  journal_->append(cell_id, rows);
}

bool RowsFile::has(const std::string& cell_id) const {
  return (journal_ && journal_->has(cell_id)) || in_file_.count(cell_id) != 0;
}

void RowsFile::finish(const std::vector<std::string>& cell_ids, bool complete) {
  if (!journal_) return;
  std::set<std::string> others = in_file_;
  for (const auto& [id, offset] : journal_->cells()) others.insert(id);
  std::vector<std::string> order;
  for (const std::string& id : cell_ids) {
    if (others.erase(id) > 0) order.push_back(id);
  }
  order.insert(order.end(), others.begin(), others.end());
  const hdf5::Session session;
  const hdf5::Handle before = in_file_.empty() ? hdf5::Handle() : open_rows(path_);
  write_rows_file(path_, columns_, order, [&](const std::string& id) {
    return journal_->has(id) ? journal_->read(id) : read_stored(path_, before.get(), columns_, id);
  });
  in_file_ = {order.begin(), order.end()};
  if (!complete) return;
  journal_.reset();
  std::remove(journal_path_.c_str());
}

// The journal's record of a cell wins.
struct RowsReader::Impl {
  std::string path;
  Names columns;
  hdf5::Handle file;  // none: there is no such file
  std::optional<RowsJournal> journal;
};

RowsReader::RowsReader(const std::string& path, std::vector<std::string> columns)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->columns = std::move(columns);
  const bool has_journal = file_exists(journal_of(path));
  if (has_journal) {
    impl_->journal.emplace(journal_of(path), impl_->columns, AppendLog::Access::kRead);
  }
  if (!file_exists(path)) {
    if (!has_journal) throw InputError(unreadable(path, "no such file"));
    return;
  }
  const hdf5::Session session;
  try {
    impl_->file = open_rows(path);
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(path, error.what()));
  }
}

RowsReader::~RowsReader() = default;
RowsReader::RowsReader(RowsReader&&) noexcept = default;
RowsReader& RowsReader::operator=(RowsReader&&) noexcept = default;

bool RowsReader::has(const std::string& cell_id) const {
  const hdf5::Session session;
  return (impl_->journal && impl_->journal->has(cell_id)) ||
         (impl_->file && has_cell(impl_->file.get(), impl_->columns, cell_id));
}

CellRows RowsReader::read(const std::string& cell_id) const {
  if (impl_->journal && impl_->journal->has(cell_id)) return impl_->journal->read(cell_id);
  const hdf5::Session session;
  return read_stored(impl_->path, impl_->file.get(), impl_->columns, cell_id);
}

}  // namespace kvbench
