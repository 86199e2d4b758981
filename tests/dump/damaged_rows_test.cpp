// results.rows.h5 with changed bytes and sizes: set aside or refused, never fatal.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "cellfiles/rows_file.hpp"
#include "dump/small_dump.hpp"
#include "system/error.hpp"

using namespace kvbench;

namespace damaged_rows_test {

const std::vector<std::string> kColumns = {"relative_l2", "kept_mass"};

CellRows rows_of(Index rows, int heads_per_kv) {
  CellRows cell{.heads_per_kv = heads_per_kv, .rows = {}, .columns = {}};
  for (Index row = 0; row < rows; ++row) cell.rows.push_back(row);
  const std::vector<double> values(rows * heads_per_kv, 0.5);
  cell.columns.assign(kColumns.size(), values);
  return cell;
}

std::string small_rows_file(const TemporaryFolder& folder) {
  std::string path = folder.file("sound.rows.h5");
  write_rows_file(path, kColumns, [](const AddCell& add) {
    for (const char* id : {"aa", "bb", "cc"}) add(id, rows_of(5, 2));
  });
  return path;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// 1 to 8 bytes anywhere, or an address or size of 8 bytes; most of this file is structure.
std::string mutated(std::string bytes, std::mt19937& chance) {
  const auto below = [&](std::size_t n) { return chance() % n; };
  if (below(2) == 0) {
    const std::uint64_t numbers[] = {below(bytes.size()),     std::uint64_t{1} << 31,
                                     std::uint64_t{1} << 40,  ~std::uint64_t{0} - below(64),
                                     bytes.size() - below(8), below(1 << 20)};
    const std::uint64_t number = numbers[below(std::size(numbers))];
    const std::size_t at = 8 * below(bytes.size() / 8);
    std::copy_n(reinterpret_cast<const char*>(&number), 8, bytes.begin() + static_cast<long>(at));
    return bytes;
  }
  for (std::size_t left = 1 + below(8); left > 0; --left) {
    bytes[below(bytes.size())] = static_cast<char>(below(256));
  }
  return bytes;
}

long peak_mib(__rusage_who of) {
  rusage used{};
  getrusage(of, &used);
  return used.ru_maxrss / 1024;
}

// The errors of merge, which reads all.
std::vector<std::string> errors_of_reading(const std::string& path) {
  return errors_of([&] {
    const RowsReader reader(path, kColumns);
    for (const char* id : {"aa", "bb", "cc"}) {
      if (!reader.has(id)) continue;
      const CellRows cell = reader.read(id);
      for (const auto& column : cell.columns) {
        CHECK(column.size() == cell.rows.size() * static_cast<std::size_t>(cell.heads_per_kv));
      }
    }
  });
}

TEST_CASE("rows files with changed bytes are read or refused by name, within 300 MiB") {
  const TemporaryFolder folder;
  const std::string sound = bytes_of(small_rows_file(folder));
  const std::string path = folder.file("results.rows.h5");
  std::mt19937 chance(20261126);  // NOLINT(*-msc51-cpp): the same ones every time
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    write_bytes(path, mutated(sound, chance));
    const auto errors = errors_of_reading(path);
    refused += errors.empty() ? 0 : 1;
    CHECK((errors.empty() || says(errors, {path, "run the sweep that wrote it again"})));
    // A run sets such a file aside, and keeps what is sound.
    const bool as_refused = RowsFile(path, kColumns).was_damaged() == !errors.empty();
    CHECK(as_refused);
    CHECK(std::filesystem::exists(errors.empty() ? path : path + ".damaged"));
  }
  CHECK(refused > 50);
  CHECK(refused < 300);
  if (kSanitized) return;
  CHECK(peak_mib(RUSAGE_CHILDREN) < 300);
  CHECK(peak_mib(RUSAGE_SELF) < 300);
}

TEST_CASE(
    "sizes of per-row values that the file has no room for are refused before they are read") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  struct Planted {
    std::vector<hsize_t> extent;
    hid_t type;
    std::string says;
  };
  const std::vector<Planted> all = {
      {{std::uint64_t{1} << 40, 5}, H5T_IEEE_F64LE, "room"},
      {{2, std::uint64_t{1} << 58}, H5T_IEEE_F64LE, "room"},
      {{2, 5}, H5T_IEEE_F64LE, "do not lie in the file"},  // never written
      {{2, 5}, H5T_IEEE_F32LE, "type"},
      {{10}, H5T_IEEE_F64LE, "1 dimensions, expected 2"},
      {{2, 4}, H5T_IEEE_F64LE, "kept_mass"}};
  for (const Planted& planted : all) {
    CAPTURE(planted.says);
    std::filesystem::rename(small_rows_file(folder), path);
    {
      const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kReadWrite);
      hdf5::check(H5Ldelete(file.get(), "/bb/kept_mass", H5P_DEFAULT));
      const hdf5::Handle space(H5Screate_simple(static_cast<int>(planted.extent.size()),
                                                planted.extent.data(), nullptr));
      const hdf5::Handle dataset(H5Dcreate2(file.get(), "/bb/kept_mass", planted.type, space.get(),
                                            H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
    CHECK(says(errors_of_reading(path), {path, "bb/kept_mass", planted.says}));
    CHECK(RowsFile(path, kColumns).was_damaged());
  }
}

TEST_CASE("a changed number is noticed wherever it stands, and the file is set aside") {
  const TemporaryFolder folder;
  const std::string sound = bytes_of(small_rows_file(folder));
  const std::string path = folder.file("results.rows.h5");
  const double half = 0.5;
  const std::string number(reinterpret_cast<const char*>(&half), sizeof half);
  int numbers = 0;
  for (std::size_t at = sound.find(number); at != std::string::npos;
       at = sound.find(number, at + sizeof half)) {
    ++numbers;
    std::string bytes = sound;
    bytes[at + static_cast<std::size_t>(numbers) % sizeof half] ^= 1;
    write_bytes(path, bytes);
    CHECK(says(errors_of_reading(path), {path, "checksum", "run the sweep that wrote it again"}));
    CHECK(RowsFile(path, kColumns).was_damaged());
  }
  CHECK(numbers == 3 * 2 * 5 * 2);  // cells, columns, rows, query heads
  // No cell is judged by a column that this program does not know.
  write_bytes(path, sound);
  CHECK_FALSE(RowsFile(path, {"relative_l2"}).was_damaged());
}

}  // namespace damaged_rows_test
