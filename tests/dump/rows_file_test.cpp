#include "cellfiles/rows_file.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "dump/small_dump.hpp"

using namespace kvbench;

namespace rows_file_test {

const std::vector<std::string> kColumns = {"relative_l2", "numerator_error", "kept_mass"};

CellRows rows_of(std::vector<Index> rows, int heads_per_kv, double start) {
  CellRows cell{.heads_per_kv = heads_per_kv, .rows = std::move(rows), .columns = {}};
  double next = start;
  for (std::size_t column = 0; column < kColumns.size(); ++column) {
    std::vector<double>& values = cell.columns.emplace_back();
    for (std::size_t i = 0; i < cell.rows.size() * static_cast<std::size_t>(heads_per_kv); ++i) {
      values.push_back(next += 0.25);
    }
  }
  return cell;
}

void finish(RowsFile& file, const std::vector<std::string>& ids, bool complete) {
  file.finish(ids.size(), [&](std::size_t i) { return ids[i]; }, complete);
}

// Name of the dataset -> (dims, values).
std::pair<std::vector<std::uint64_t>, std::vector<double>> stored(const std::string& path,
                                                                  const std::string& dataset) {
  const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kRead);
  const hdf5::Handle opened(H5Dopen2(file.get(), dataset.c_str(), H5P_DEFAULT));
  const hdf5::Handle space(H5Dget_space(opened.get()));
  const auto dims = hdf5::extent(space.get());
  std::vector<double> values(H5Sget_simple_extent_npoints(space.get()));
  hdf5::check(
      H5Dread(opened.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return {dims, values};
}

TEST_CASE("rows of cells are written, found again, and replaced") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  CellRows first = rows_of({10, 11, 15}, 2, 0.0);
  first.columns[1][4] = std::nan("");
  const CellRows second = rows_of({3}, 1, 100.0);
  {
    RowsFile file(path, kColumns);
    CHECK_FALSE(file.has("aa"));
    file.write("aa", rows_of({1, 2}, 2, 50.0));
    file.write("aa", first);
    CHECK(file.has("aa"));
    CHECK_FALSE(file.was_damaged());
    finish(file, {}, true);
    CHECK(file.has("aa"));
  }
  {
    RowsFile file(path, kColumns);
    CHECK(file.has("aa"));
    CHECK_FALSE(file.has("bb"));
    file.write("bb", second);
    finish(file, {}, true);
  }
  CHECK(stored(path, "/aa/rows").second == std::vector<double>{10, 11, 15});
  const auto l2 = stored(path, "/aa/relative_l2");
  CHECK(l2.first == std::vector<std::uint64_t>{2, 3});
  CHECK(l2.second == first.columns[0]);
  CHECK(std::isnan(stored(path, "/aa/numerator_error").second[4]));
  CHECK(stored(path, "/aa/kept_mass").second == first.columns[2]);
  CHECK(stored(path, "/bb/kept_mass").second == second.columns[2]);
}

TEST_CASE(
    "a cell is kept as soon as it is written, and the HDF5 file is left alone until the end") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  RowsFile file(path, kColumns);
  file.write("aa", rows_of({1, 2}, 1, 0.0));
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(RowsReader(path, kColumns).has("aa"));
  CHECK(RowsFile(path, kColumns).has("aa"));
  // A run that was stopped leaves both.
  finish(file, {"aa", "bb"}, false);
  CHECK(std::filesystem::exists(path + ".journal"));
  CHECK(stored(path, "/aa/kept_mass").second == rows_of({1, 2}, 1, 0.0).columns[2]);
  file.write("aa", rows_of({1, 2}, 1, 9.0));
  file.write("bb", rows_of({3}, 1, 5.0));
  CHECK(RowsReader(path, kColumns).read("aa").columns[2] == rows_of({1, 2}, 1, 9.0).columns[2]);
  finish(file, {"bb", "aa"}, true);
  CHECK_FALSE(std::filesystem::exists(path + ".journal"));
  CHECK(stored(path, "/aa/kept_mass").second == rows_of({1, 2}, 1, 9.0).columns[2]);
}

TEST_CASE("a file that cannot be read is set aside, a folder that cannot be written refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  {
    RowsFile file(path, kColumns);
    file.write("aa", rows_of({1}, 1, 0.0));
    finish(file, {}, true);
  }
  const auto whole = std::filesystem::file_size(path);
  for (std::uintmax_t size = 0; size < whole; size += 64) {
    CAPTURE(size);
    const std::string cut = folder.file("cut" + std::to_string(size) + ".h5");
    std::filesystem::copy_file(path, cut);
    std::filesystem::resize_file(cut, size);
    RowsFile file(cut, kColumns);
    CHECK(file.was_damaged());
    CHECK(std::filesystem::file_size(cut + ".damaged") == size);
    CHECK_FALSE(file.has("aa"));
    file.write("aa", rows_of({1}, 1, 0.0));
    finish(file, {}, true);
    CHECK(RowsFile(cut, kColumns).has("aa"));
  }
  CHECK(says(errors_of([&] { RowsFile file(folder.file("none/rows.h5"), kColumns); }),
             {folder.file("none/rows.h5"), "cannot be written"}));
}

TEST_CASE("a file that another program writes to is not taken for damaged") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  {
    RowsFile file(path, kColumns);
    file.write("aa", rows_of({1}, 1, 0.0));
    finish(file, {}, true);
  }
  {
    const hdf5::Handle other = hdf5::open_file(path, hdf5::Access::kReadWrite);
    CHECK(says(errors_of([&] { RowsFile file(path, kColumns); }), {path, "another program"}));
  }
  CHECK(RowsFile(path, kColumns).has("aa"));
}

TEST_CASE("finished files of equal cells are equal byte by byte, and have no journal") {
  const TemporaryFolder folder;
  const std::string one = folder.file("one.h5");
  const std::string two = folder.file("two.h5");
  {
    RowsFile file(one, kColumns);
    file.write("aa", rows_of({1, 2}, 1, 0.0));
    file.write("bb", rows_of({3}, 1, 5.0));
    file.write("other", rows_of({3}, 1, 9.0));
    finish(file, {"bb", "none", "aa"}, true);
    CHECK(file.has("aa"));
  }
  {
    RowsFile file(two, kColumns);
    file.write("bb", rows_of({4}, 1, 50.0));
  }
  {
    RowsFile file(two, kColumns);  // begun by a run that was killed
    file.write("other", rows_of({3}, 1, 9.0));
    file.write("bb", rows_of({3}, 1, 5.0));
    file.write("aa", rows_of({1, 2}, 1, 0.0));
    finish(file, {"bb", "aa"}, true);
  }
  for (const std::string& path : {one, two}) {
    CHECK_FALSE(std::filesystem::exists(path + ".journal"));
    CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
  }
  std::ifstream a(one, std::ios::binary), b(two, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(a)), {});
  CHECK(bytes == std::string((std::istreambuf_iterator<char>(b)), {}));
  // Cells that are added later join those that were there.
  {
    RowsFile file(one, kColumns);
    file.write("cc", rows_of({8}, 1, 1.0));
  }
  CHECK(RowsReader(one, kColumns).has("aa"));
  CHECK(RowsReader(one, kColumns).has("cc"));
  CHECK_FALSE(RowsReader(one, kColumns).has("dd"));
}

TEST_CASE("a journal of rows cut at any byte loses the torn record and nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.journal");
  const CellRows first = rows_of({1, 5}, 2, 0.0);
  std::uintmax_t first_end = 0;
  {
    RowsJournal journal(path, kColumns, AppendLog::Access::kWrite);
    journal.append("aa", first);
    first_end = std::filesystem::file_size(path);
    journal.append("bb", rows_of({7}, 1, 3.0));
  }
  const std::uintmax_t whole = std::filesystem::file_size(path);
  const std::string original = folder.file("whole.journal");
  std::filesystem::copy_file(path, original);
  for (std::uintmax_t cut = whole; cut-- > 0;) {
    std::filesystem::copy_file(original, path, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path, cut);
    {
      const RowsJournal journal(path, kColumns, AppendLog::Access::kRead);
      REQUIRE(journal.size() == (cut >= first_end ? 1 : 0));
      if (cut >= first_end) REQUIRE(journal.read("aa").rows == first.rows);
    }
    if (cut % 50 != 0) continue;
    RowsJournal again(path, kColumns, AppendLog::Access::kWrite);
    again.append("bb", rows_of({7}, 1, 3.0));
    CHECK(again.read("bb").columns[2] == rows_of({7}, 1, 3.0).columns[2]);
    CHECK(again.size() == (cut >= first_end ? 2 : 1));
  }
}

TEST_CASE("a record of rows that was damaged, or asks for too much, ends the journal there") {
  const TemporaryFolder folder;
  const std::string path = folder.file("rows.journal");
  {
    RowsJournal journal(path, kColumns, AppendLog::Access::kWrite);
    journal.append("aa", rows_of({1}, 1, 0.0));
    journal.append("bb", rows_of({2}, 1, 1.0));
  }
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
  for (const std::streamoff place : {size / 2 + 8, size / 2 + 24, size - 20}) {
    std::filesystem::copy_file(path, path + ".damaged",
                               std::filesystem::copy_options::overwrite_existing);
    {
      std::fstream file(path + ".damaged", std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(place);
      file.put('\x7f');
    }
    const RowsJournal journal(path + ".damaged", kColumns, AppendLog::Access::kRead);
    CHECK(journal.has("aa"));
    CHECK_FALSE(journal.has("bb"));
  }
}

TEST_CASE("cells that were written with other columns are not there, and those are not mistaken") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  const std::string journal = folder.file("rows.journal");
  const std::vector<std::string> renamed = {"relative_l2", "numerator_error", "mass"};
  const std::vector<std::string> more = {"relative_l2", "numerator_error", "kept_mass", "new"};
  {
    RowsFile file(path, kColumns);
    file.write("aa", rows_of({1, 2}, 1, 0.0));
    finish(file, {"aa"}, true);
    RowsJournal(journal, kColumns, AppendLog::Access::kWrite).append("aa", rows_of({1}, 1, 0.0));
  }
  for (const auto& columns : {renamed, more}) {
    CHECK_FALSE(RowsFile(path, columns).has("aa"));
    CHECK_FALSE(RowsReader(path, columns).has("aa"));
    CHECK_FALSE(RowsJournal(journal, columns, AppendLog::Access::kRead).has("aa"));
  }
  CHECK(RowsFile(path, kColumns).has("aa"));
  CHECK(RowsJournal(journal, kColumns, AppendLog::Access::kRead).has("aa"));
  CHECK_THROWS_AS(RowsFile(path, more).write("bb", rows_of({1}, 1, 0.0)), std::logic_error);
}

TEST_CASE("the file has groups that hold millions of cells, and HDF5 1.8 reads it") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  write_rows_file(path, kColumns, [](const AddCell& add) {
    for (int cell = 0; cell < 100; ++cell) add(std::to_string(cell), rows_of({1}, 1, cell));
  });
  const hdf5::Session session;
  const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kRead);
  H5F_info2_t about{};
  hdf5::check(H5Fget_info2(file.get(), &about));
  CHECK(about.super.version == 2);  // 3 came with 1.10
  H5G_info_t root{};
  hdf5::check(H5Gget_info(file.get(), &root));
  CHECK(root.nlinks == 100);
  CHECK(root.storage_type == H5G_STORAGE_TYPE_DENSE);  // not one piece with all names
}

}  // namespace rows_file_test
