#include "dump/rows_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
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
    return false;  // half of it was written when a run was killed
  }
}

void write_cell(hid_t file, const Names& columns, const std::string& cell_id,
                const CellRows& cell) {
  const std::uint64_t rows = cell.rows.size();
  const auto heads = static_cast<std::uint64_t>(cell.group);
  if (cell.columns.size() != columns.size()) {
    throw std::logic_error("rows file: wrong number of columns");
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (cell.columns[c].size() != rows * heads) {
      throw std::logic_error("rows file: wrong number of " + columns[c]);
    }
  }
  if (H5Lexists(file, cell_id.c_str(), H5P_DEFAULT) > 0) {
    hdf5::check(H5Ldelete(file, cell_id.c_str(), H5P_DEFAULT));
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
    cell.group = static_cast<int>(extent[0]);
  }
  return cell;
}

}  // namespace

void write_rows_file(const std::string& path, const std::vector<std::string>& columns,
                     const std::vector<std::string>& cell_ids,
                     const std::function<CellRows(const std::string&)>& read) {
  const std::string temporary = path + ".tmp";
  try {
    {
      const hdf5::Handle file = hdf5::create_file(temporary);
      for (const std::string& id : cell_ids) {
        write_cell(file.get(), columns, id, read(id));
      }
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

struct RowsFile::Impl {
  std::string path;
  Names columns;
  std::string journal_path;
  hdf5::Handle file;
  std::unique_ptr<RowsJournal> journal;
  bool started_anew = false;

  void open() {
    std::error_code ignored;
    const bool exists = fs::exists(path, ignored) && fs::file_size(path, ignored) > 0;
    if (!std::ofstream(path, std::ios::binary | std::ios::app)) {
      throw unwritable(path, std::strerror(errno));
    }
    if (!exists) {
      create();
      return;
    }
    try {
      file = hdf5::open_file(path, hdf5::Access::kReadWrite);
      hdf5::children(file.get());
    } catch (const hdf5::Error& error) {
      file = hdf5::Handle();
      const std::string reason = error.what();
      // "sblock" stands in other messages.
      if (reason.find(" lock ") != std::string::npos) throw unwritable(path, reason);
      const std::string damaged = path + ".damaged";
      if (std::rename(path.c_str(), damaged.c_str()) != 0) throw unwritable(path, reason);
      started_anew = true;
      create();
    }
  }

  void create() {
    try {
      file = hdf5::create_file(path);
    } catch (const hdf5::Error& error) {
      throw unwritable(path, error.what());
    }
  }

  std::vector<std::string> whole_cells() const {
    std::vector<std::string> ids = hdf5::children(file.get());
    std::erase_if(ids, [&](const std::string& id) { return !has_cell(file.get(), columns, id); });
    return ids;
  }

  // Under a temporary name until it holds all that the file does: a journal that is found is the
  // whole truth.
  void begin() {
    if (journal) return;
    const std::string temporary = journal_path + ".tmp";
    std::remove(temporary.c_str());
    {
      RowsJournal seeded(temporary, columns, RowsJournal::Access::kWrite);
      for (const std::string& id : whole_cells()) {
        seeded.append(id, read_cell(file.get(), columns, id));
      }
      seeded.sync();
    }
    replace_file(temporary, journal_path);
    journal = std::make_unique<RowsJournal>(journal_path, columns, RowsJournal::Access::kWrite);
  }
};

RowsFile::RowsFile(const std::string& path, std::vector<std::string> columns)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->columns = std::move(columns);
  impl_->journal_path = journal_of(path);
  std::error_code ignored;
  if (fs::exists(impl_->journal_path, ignored)) {
    impl_->journal = std::make_unique<RowsJournal>(impl_->journal_path, impl_->columns,
                                                   RowsJournal::Access::kWrite);
    std::vector<std::string> ids;
    for (const auto& [id, place] : impl_->journal->cells()) ids.push_back(id);
    write_rows_file(path, impl_->columns, ids,
                    [&](const std::string& id) { return impl_->journal->read(id); });
  }
  impl_->open();
}

RowsFile::~RowsFile() = default;
RowsFile::RowsFile(RowsFile&&) noexcept = default;
RowsFile& RowsFile::operator=(RowsFile&&) noexcept = default;

const std::string& RowsFile::begin() {
  const hdf5::Session session;
  try {
    impl_->begin();
  } catch (const hdf5::Error& error) {
    throw IoError(unreadable(impl_->path, error.what()));
  }
  return impl_->journal_path;
}

void RowsFile::write(const std::string& cell_id, const CellRows& cell) {
  const hdf5::Session session;
  begin();
  impl_->journal->append(cell_id, cell);
  try {
    write_cell(impl_->file.get(), impl_->columns, cell_id, cell);
    hdf5::check(H5Fflush(impl_->file.get(), H5F_SCOPE_GLOBAL));
  } catch (const hdf5::Error& error) {
    throw unwritable(impl_->path, error.what());
  }
}

bool RowsFile::has(const std::string& cell_id) const {
  const hdf5::Session session;
  return has_cell(impl_->file.get(), impl_->columns, cell_id);
}

bool RowsFile::started_anew() const { return impl_->started_anew; }

void RowsFile::settle(const std::vector<std::string>& cell_ids) {
  if (!impl_->journal) return;
  std::vector<std::string> order;
  std::set<std::string> taken;
  for (const std::string& id : cell_ids) {
    if (impl_->journal->has(id) && taken.insert(id).second) order.push_back(id);
  }
  for (const auto& [id, place] : impl_->journal->cells()) {
    if (taken.count(id) == 0) order.push_back(id);
  }
  impl_->file = hdf5::Handle();
  write_rows_file(impl_->path, impl_->columns, order,
                  [&](const std::string& id) { return impl_->journal->read(id); });
  impl_->journal.reset();
  std::remove(impl_->journal_path.c_str());
  impl_->open();
}

struct RowsReader::Impl {
  std::string path;
  Names columns;
  std::unique_ptr<RowsJournal> journal;
  hdf5::Handle file;
};

RowsReader::RowsReader(const std::string& path, std::vector<std::string> columns)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  impl_->columns = std::move(columns);
  std::error_code ignored;
  if (fs::exists(journal_of(path), ignored)) {
    impl_->journal =
        std::make_unique<RowsJournal>(journal_of(path), impl_->columns, RowsJournal::Access::kRead);
    return;
  }
  if (!fs::exists(path, ignored)) throw InputError(unreadable(path, "there is no such file"));
  try {
    impl_->file = hdf5::open_file(path, hdf5::Access::kRead);
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(path, error.what()));
  }
}

RowsReader::~RowsReader() = default;
RowsReader::RowsReader(RowsReader&&) noexcept = default;
RowsReader& RowsReader::operator=(RowsReader&&) noexcept = default;

bool RowsReader::has(const std::string& cell_id) const {
  return impl_->journal ? impl_->journal->has(cell_id)
                        : has_cell(impl_->file.get(), impl_->columns, cell_id);
}

CellRows RowsReader::read(const std::string& cell_id) const {
  if (impl_->journal) return impl_->journal->read(cell_id);
  try {
    return read_cell(impl_->file.get(), impl_->columns, cell_id);
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(impl_->path, error.what()));
  }
}

}  // namespace kvbench
