#include "dump/rows_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "core/error.hpp"
#include "dump/hdf5.hpp"

namespace kvbench {
namespace {

struct Column {
  const char* name;
  std::vector<double> RowErrors::*values;
};
constexpr std::array<Column, 6> kColumns = {{
    {"relative_l2", &RowErrors::relative_l2},
    {"epsilon_spectral", &RowErrors::epsilon_spectral},
    {"epsilon_frobenius", &RowErrors::epsilon_frobenius},
    {"numerator_error", &RowErrors::numerator_error},
    {"normalizer_error", &RowErrors::normalizer_error},
    {"kept_mass", &RowErrors::kept_mass},
}};

InputError unwritable(const std::string& path, const std::string& why) {
  return InputError(
      fmt::format("{}: cannot be written ({}); check the folder and its free space, and that no "
                  "other run uses it",
                  path, why));
}

}  // namespace

struct RowsFile::Impl {
  std::string path;
  hdf5::Handle file;
  bool started_anew = false;
};

RowsFile::RowsFile(const std::string& path) : impl_(std::make_unique<Impl>()) {
  namespace fs = std::filesystem;
  impl_->path = path;
  std::error_code ignored;
  const bool exists = fs::exists(path, ignored) && fs::file_size(path, ignored) > 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) {
    throw unwritable(path, std::strerror(errno));
  }
  try {
    if (!exists) {
      impl_->file = hdf5::create_file(path);
      return;
    }
    impl_->file = hdf5::open_file(path, hdf5::Access::kReadWrite);
    hdf5::children(impl_->file.get());
  } catch (const hdf5::Error& error) {
    impl_->file = hdf5::Handle();
    const std::string reason = error.what();
    if (reason.find("lock") != std::string::npos) throw unwritable(path, reason);
    const std::string damaged = path + ".damaged";
    if (std::rename(path.c_str(), damaged.c_str()) != 0) throw unwritable(path, reason);
    impl_->started_anew = true;
    impl_->file = hdf5::create_file(path);
  }
}

RowsFile::~RowsFile() = default;
RowsFile::RowsFile(RowsFile&&) noexcept = default;
RowsFile& RowsFile::operator=(RowsFile&&) noexcept = default;

void RowsFile::write(const std::string& cell_id, int group, const RowErrors& errors) {
  const std::uint64_t rows = errors.rows.size();
  const auto heads = static_cast<std::uint64_t>(group);
  for (const Column& column : kColumns) {
    if ((errors.*column.values).size() != rows * heads) {
      throw std::logic_error(std::string("rows file: wrong number of ") + column.name);
    }
  }
  const hid_t file = impl_->file.get();
  try {
    if (H5Lexists(file, cell_id.c_str(), H5P_DEFAULT) > 0) {
      hdf5::check(H5Ldelete(file, cell_id.c_str(), H5P_DEFAULT));
    }
    const hdf5::Handle cell = hdf5::create_group(file, cell_id);
    hdf5::write_dataset(cell.get(), "rows", {rows}, errors.rows.data());
    for (const Column& column : kColumns) {
      hdf5::write_dataset(cell.get(), column.name, {heads, rows}, (errors.*column.values).data());
    }
    hdf5::check(H5Fflush(file, H5F_SCOPE_GLOBAL));
  } catch (const hdf5::Error& error) {
    throw unwritable(impl_->path, error.what());
  }
}

bool RowsFile::has(const std::string& cell_id) const {
  try {
    if (hdf5::kind_of(impl_->file.get(), cell_id) != hdf5::Kind::kGroup) return false;
    const hdf5::Handle cell = hdf5::open_group(impl_->file.get(), cell_id);
    for (const Column& column : kColumns) {
      if (hdf5::kind_of(cell.get(), column.name) != hdf5::Kind::kDataset) return false;
    }
    return hdf5::kind_of(cell.get(), "rows") == hdf5::Kind::kDataset;
  } catch (const hdf5::Error&) {
    return false;  // half of it was written when a run was killed
  }
}

bool RowsFile::started_anew() const { return impl_->started_anew; }

}  // namespace kvbench
