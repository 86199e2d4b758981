#include "cellfiles/rows_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "hdf5/first_reading.hpp"
#include "hdf5/hdf5.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

constexpr const char* kRemedy = "run the sweep that wrote it again";

IoError unwritable_rows(const std::string& path, const std::string& why) {
  return IoError(
      fmt::format("{}: cannot be written ({}); check the folder and its free space, and that no "
                  "other run uses it",
                  path, why));
}

std::string unreadable(const std::string& path, const std::string& why) {
  return fmt::format("{}: cannot be read ({}); {}", path, why, kRemedy);
}

std::string journal_of(const std::string& path) { return path + ".journal"; }

// Whether the cell is there with all of these columns.
bool has_cell(hid_t file, const Names& columns, const std::string& cell_id) {
  if (hdf5::kind_of(file, cell_id) != hdf5::Kind::kGroup) return false;
  const hdf5::Handle cell = hdf5::open_group(file, cell_id);
  for (const std::string& column : columns) {
    if (hdf5::kind_of(cell.get(), column) != hdf5::Kind::kDataset) return false;
  }
  return hdf5::kind_of(cell.get(), "rows") == hdf5::Kind::kDataset;
}

constexpr const char* kChecksum = "checksum";

// The attribute of a cell's group by which changed numbers are noticed: HDF5 checks its structure
// alone.
std::int64_t checksum_of(const std::string& cell_id, const CellRows& cell) {
  Hash128 hash;
  hash.add(cell_id);
  hash.add(cell.rows.data(), cell.rows.size() * sizeof(Index));
  for (const std::vector<double>& column : cell.columns) {
    hash.add(column.data(), column.size() * sizeof(double));
  }
  return std::bit_cast<std::int64_t>(Key128::from_text(hash.hex()).value().low);
}

void write_cell(hid_t file, const Names& columns, const std::string& cell_id,
                const CellRows& cell) {
  const std::uint64_t rows = cell.rows.size();
  const std::uint64_t heads = cell.heads_per_kv;
  if (cell.columns.size() != columns.size()) {
    throw std::logic_error("rows file: wrong number of columns");
  }
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (cell.columns[c].size() != rows * heads) {
      throw std::logic_error("rows file: wrong number of " + columns[c]);
    }
  }
  const hdf5::Handle group = hdf5::create_group(file, cell_id);
  hdf5::write_attribute(group.get(), kChecksum, checksum_of(cell_id, cell));
  hdf5::write_dataset(group.get(), "rows", {rows}, cell.rows.data());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    hdf5::write_dataset(group.get(), columns[c], {heads, rows}, cell.columns[c].data());
  }
}

// A dataset of a cell whose values lie in the file as write_cell put them there.
struct Stored {
  hdf5::Handle dataset;
  std::vector<std::uint64_t> extent;
  std::uint64_t values = 0;
};

// Sizes are compared with the file before memory is asked for. Throws hdf5::Error.
Stored open_stored(hid_t cell, const std::string& name, hid_t type, std::size_t rank,
                   std::uint64_t file_bytes) {
  Stored out{.dataset = hdf5::open_dataset(cell, name), .extent = {}};
  const hid_t dataset = out.dataset.get();
  const hdf5::Handle space(H5Dget_space(dataset));
  out.extent = hdf5::extent(space.get());
  if (out.extent.size() != rank) {
    throw hdf5::Error(
        fmt::format("{}: has {} dimensions, expected {}", name, out.extent.size(), rank));
  }
  const hdf5::Handle stored_type(H5Dget_type(dataset));
  if (H5Tequal(stored_type.get(), type) <= 0) {
    throw hdf5::Error(name + ": has another type than kvbench writes");
  }
  const hdf5::Handle properties(H5Dget_create_plist(dataset));
  if (H5Pget_layout(properties.get()) != H5D_CONTIGUOUS) {
    throw hdf5::Error(name + ": has another layout than kvbench writes");
  }
  const std::uint64_t most = file_bytes / sizeof(double);
  out.values = 1;
  for (const std::uint64_t size : out.extent) {
    if (size != 0 && out.values > most / size) {
      throw hdf5::Error(fmt::format("{}: has more values than the file has room for", name));
    }
    out.values *= size;
  }
  if (out.values == 0) return out;
  const std::uint64_t bytes = out.values * sizeof(double);
  const haddr_t start = H5Dget_offset(dataset);
  if (H5Dget_storage_size(dataset) != bytes || start == HADDR_UNDEF || start > file_bytes - bytes) {
    throw hdf5::Error(name + ": has values that do not lie in the file");
  }
  return out;
}

template <class T>
std::vector<T> values_of(const Stored& stored, hid_t type) {
  std::vector<T> values(stored.values);
  if (values.empty()) return values;
  hdf5::check(H5Dread(stored.dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return values;
}

// The checksum that the cell was written with. None where the group has datasets that `columns` do
// not name: the checksum is over all of them.
std::optional<std::int64_t> written_checksum(hid_t group, const Names& columns) {
  H5G_info_t info{};
  hdf5::check(H5Gget_info(group, &info));
  if (info.nlinks != columns.size() + 1) return std::nullopt;
  const auto checksum = hdf5::read_integer(group, kChecksum);
  if (!checksum) throw hdf5::Error(fmt::format("attribute {} is not an integer", kChecksum));
  return checksum;
}

enum class Values { kRead, kLeft };

// Without the values, and their checksum, where they are left. Throws hdf5::Error.
CellRows read_cell(hid_t file, const Names& columns, const std::string& cell_id,
                   std::uint64_t file_bytes, Values values) {
  CellRows cell;
  const hdf5::Handle group = hdf5::open_group(file, cell_id);
  const Stored rows = open_stored(group.get(), "rows", H5T_STD_I64LE, 1, file_bytes);
  if (values == Values::kRead) cell.rows = values_of<Index>(rows, H5T_NATIVE_INT64);
  std::uint64_t heads = 0;
  for (const std::string& column : columns) {
    const Stored stored = open_stored(group.get(), column, H5T_IEEE_F64LE, 2, file_bytes);
    if (heads == 0) heads = stored.extent[0];
    if (stored.extent[0] != heads || stored.extent[1] != rows.values) {
      throw hdf5::Error(fmt::format("{}: is [{}, {}], expected [{}, {}]", column, stored.extent[0],
                                    stored.extent[1], heads, rows.values));
    }
    if (values == Values::kRead) {
      cell.columns.push_back(values_of<double>(stored, H5T_NATIVE_DOUBLE));
    }
  }
  if (heads > (std::numeric_limits<int>::max())) {
    throw hdf5::Error(fmt::format("has {} query heads", heads));
  }
  cell.heads_per_kv = static_cast<int>(heads);
  if (values == Values::kLeft) return cell;
  const auto checksum = written_checksum(group.get(), columns);
  if (checksum && *checksum != checksum_of(cell_id, cell)) {
    throw hdf5::Error("checksum: does not match the numbers");
  }
  return cell;
}

// Throws InputError with the file and the cell.
CellRows read_stored(const std::string& path, hid_t file, const Names& columns,
                     const std::string& cell_id, Values values) {
  try {
    return read_cell(file, columns, cell_id, fs::file_size(path), values);
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(path, cell_id + "/" + error.what()));
  }
}

// HDF5 takes a lock for damage: its message alone tells them apart. It blocks on a pipe.
void refuse_locked(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw InputError(path + ": is not a regular file; remove it, or choose another folder");
  }
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.is_open() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw IoError(path + ": cannot read: another program has it open for writing; close it there");
  }
}

// Throws InputError.
hdf5::Handle open_rows(const std::string& path) {
  try {
    hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kRead);
    hdf5::limit_metadata(file.get());
    return file;
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(path, error.what()));
  }
}

// Visits the cells of the file that have all of these columns, in the order in which the file has
// them; `step` is called before each member is looked at. Throws InputError.
void each_cell(const std::string& path, const Names& columns, hid_t file, const Step& step,
               const std::function<void(const std::string& id)>& visit) {
  try {
    hdf5::each_child(file, fs::file_size(path), [&](const std::string& id) {
      step();
      if (has_cell(file, columns, id)) visit(id);
    });
  } catch (const hdf5::Error& error) {
    throw InputError(unreadable(path, error.what()));
  }
}

// Hashes of their ids.
KeyIndex cells_in(const std::string& path, const Names& columns, hid_t file) {
  KeyIndex cells;
  each_cell(path, columns, file, [] {}, [&](const std::string& id) { cells.add(hash128(id)); });
  return cells;
}

bool has_id(const KeyIndex& cells, const std::string& id) {
  return cells.find(hash128(id)).has_value();
}

// Whether there is one of `keys` that `all` has not.
bool has_other(const KeyIndex& keys, const KeyIndex& all) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!all.find(keys[i])) return true;
  }
  return false;
}

// Reads all but the values in a child process. Throws InputError for damage of any cell.
void read_rows_first(const std::string& path, const Names& columns) {
  const auto read = [&](const Step& step) {
    const hdf5::Handle file = open_rows(path);
    each_cell(path, columns, file.get(), step, [&](const std::string& id) {
      read_stored(path, file.get(), columns, id, Values::kLeft);
    });
    return std::vector<std::string>();
  };
  read_in_child(path, read, {.remedy = kRemedy});
}

}  // namespace

void write_rows_file(const std::string& path, const std::vector<std::string>& columns,
                     const std::function<void(const AddCell& add)>& fill) {
  const hdf5::Session session;
  const std::string temporary = temporary_name(path);
  try {
    {
      const hdf5::Handle file = hdf5::create_file(temporary, hdf5::Objects::kMillions);
      fill([&](const std::string& id, const CellRows& rows) {
        write_cell(file.get(), columns, id, rows);
      });
      hdf5::check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
    }
    replace_file(temporary, path);
  } catch (const hdf5::Error& error) {
    std::remove(temporary.c_str());
    throw unwritable_rows(path, error.what());
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
}

RowsFile::RowsFile(std::string path, Names columns)
    : path_(std::move(path)), columns_(std::move(columns)) {
  const std::string folder = fs::absolute(path_).parent_path().string();
  if (::access(folder.c_str(), W_OK) != 0) throw unwritable_rows(path_, std::strerror(errno));
  if (file_exists(journal_of(path_))) start();
  if (!file_exists(path_)) return;
  refuse_locked(path_);
  try {
    read_rows_first(path_, columns_);
    const hdf5::Session session;
    const hdf5::Handle file = open_rows(path_);
    each_cell(
        path_, columns_, file.get(), [] {},
        [&](const std::string& id) {
          read_stored(path_, file.get(), columns_, id, Values::kRead);
          in_file_.add(hash128(id));
        });
  } catch (const InputError& error) {
    const std::string damaged = path_ + ".damaged";
    if (std::rename(path_.c_str(), damaged.c_str()) != 0)
      throw unwritable_rows(path_, error.what());
    in_file_ = {};
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
  return (journal_ && journal_->has(cell_id)) || has_id(in_file_, cell_id);
}

void RowsFile::finish(std::size_t cells, const std::function<std::string(std::size_t)>& id_of,
                      bool complete) {
  if (!journal_) return;
  KeyIndex order;
  for (std::size_t c = 0; c < cells; ++c) {
    const std::string id = id_of(c);
    if (has(id)) order.add(hash128(id));
  }
  const hdf5::Session session;
  const hdf5::Handle before = in_file_.size() == 0 ? hdf5::Handle() : open_rows(path_);
  std::set<std::string> others;  // cells of other sweeps
  const auto note_other = [&](const std::string& id) {
    if (!has_id(order, id)) others.insert(id);
  };
  if (has_other(journal_->keys(), order)) {
    for (std::size_t i = 0; i < journal_->size(); ++i) note_other(journal_->id(i));
  }
  if (has_other(in_file_, order)) each_cell(path_, columns_, before.get(), [] {}, note_other);

  write_rows_file(path_, columns_, [&](const AddCell& add) {
    const auto copy = [&](const std::string& id) {
      add(id, journal_->has(id) ? journal_->read(id)
                                : read_stored(path_, before.get(), columns_, id, Values::kRead));
    };
    std::size_t written = 0;
    for (std::size_t c = 0; c < cells; ++c) {
      const std::string id = id_of(c);
      if (order.find(hash128(id)) != written) continue;  // not there, or there already
      copy(id);
      ++written;
    }
    for (const std::string& id : others) copy(id);
  });
  for (const std::string& id : others) order.add(hash128(id));
  in_file_ = std::move(order);
  if (!complete) return;
  journal_.reset();
  std::remove(journal_path_.c_str());
}

double seconds_per_cell_of_rows(const Names& columns, int heads_per_kv, std::size_t rows,
                                double budget) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kMinCells = 8;
  constexpr std::size_t kMaxCells = 512;
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  const std::size_t values = rows * heads_per_kv;
  const std::size_t bytes = sizeof(double) * (rows + columns.size() * values);
  const CellRows cell{.heads_per_kv = heads_per_kv,
                      .rows = std::vector<Index>(rows),
                      .columns = std::vector(columns.size(), std::vector<double>(values))};
  const std::string body(bytes, '\0');
  const hdf5::Session session;
  const hdf5::Handle in_memory(H5Pcreate(H5P_FILE_ACCESS));
  hdf5::check(H5Pset_fapl_core(in_memory.get(), std::size_t{1} << 20, false));
  hdf5::suit_millions(in_memory.get());
  const auto start = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::size_t cells = 0;
  {
    const hdf5::Handle file(H5Fcreate("rows", H5F_ACC_TRUNC, H5P_DEFAULT, in_memory.get()));
    while (cells < kMaxCells && (cells == 0 || cells * bytes < kMaxBytes) &&
           (cells < kMinCells || spent() < budget)) {
      for (int pass = 0; pass < 2; ++pass) static_cast<void>(hash64(body));  // journal hashes
      write_cell(file.get(), columns, hash128_hex(std::to_string(cells++)), cell);
    }
    hdf5::check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  }
  return spent() / cells;
}

// The journal's record of a cell wins.
struct RowsReader::Impl {
  std::string path;
  Names columns;
  hdf5::Handle file;  // none: there is no such file
  KeyIndex in_file;   // hashes of cell ids
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
  refuse_locked(path);
  read_rows_first(path, impl_->columns);
  const hdf5::Session session;
  impl_->file = open_rows(path);
  impl_->in_file = cells_in(path, impl_->columns, impl_->file.get());
}

RowsReader::~RowsReader() = default;
RowsReader::RowsReader(RowsReader&&) noexcept = default;
RowsReader& RowsReader::operator=(RowsReader&&) noexcept = default;

bool RowsReader::has(const std::string& cell_id) const {
  return (impl_->journal && impl_->journal->has(cell_id)) || has_id(impl_->in_file, cell_id);
}

CellRows RowsReader::read(const std::string& cell_id) const {
  if (impl_->journal && impl_->journal->has(cell_id)) return impl_->journal->read(cell_id);
  const hdf5::Session session;
  return read_stored(impl_->path, impl_->file.get(), impl_->columns, cell_id, Values::kRead);
}

}  // namespace kvbench
