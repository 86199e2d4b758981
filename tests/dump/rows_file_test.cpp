#include "dump/rows_file.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "dump/small_dump.hpp"

using namespace kvbench;

namespace {

RowErrors rows_of(std::vector<Index> rows, std::size_t group, double start) {
  RowErrors errors;
  errors.rows = std::move(rows);
  double next = start;
  for (auto* column : {&errors.relative_l2, &errors.epsilon_spectral, &errors.epsilon_frobenius,
                       &errors.numerator_error, &errors.normalizer_error, &errors.kept_mass}) {
    for (std::size_t i = 0; i < errors.rows.size() * group; ++i) column->push_back(next += 0.25);
  }
  return errors;
}

// Name of the dataset -> (dims, values).
std::pair<std::vector<std::uint64_t>, std::vector<double>> stored(const std::string& path,
                                                                  const std::string& dataset) {
  const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kRead);
  const hdf5::Handle opened(H5Dopen2(file.get(), dataset.c_str(), H5P_DEFAULT));
  const hdf5::Handle space(H5Dget_space(opened.get()));
  const auto dims = hdf5::extent(space.get());
  std::vector<double> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
  hdf5::check(
      H5Dread(opened.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return {dims, values};
}

}  // namespace

TEST_CASE("rows of cells are written, found again, and replaced") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  RowErrors first = rows_of({10, 11, 15}, 2, 0.0);
  first.numerator_error[4] = std::nan("");
  const RowErrors second = rows_of({3}, 1, 100.0);
  {
    RowsFile file(path);
    CHECK_FALSE(file.has("aa"));
    file.write("aa", 2, rows_of({1, 2}, 2, 50.0));
    file.write("aa", 2, first);
    CHECK(file.has("aa"));
    CHECK_FALSE(file.started_anew());
  }
  {
    RowsFile file(path);
    CHECK(file.has("aa"));
    CHECK_FALSE(file.has("bb"));
    file.write("bb", 1, second);
  }
  CHECK(stored(path, "/aa/rows").second == std::vector<double>{10, 11, 15});
  const auto l2 = stored(path, "/aa/relative_l2");
  CHECK(l2.first == std::vector<std::uint64_t>{2, 3});
  CHECK(l2.second == first.relative_l2);
  CHECK(stored(path, "/aa/epsilon_spectral").second == first.epsilon_spectral);
  CHECK(stored(path, "/aa/epsilon_frobenius").second == first.epsilon_frobenius);
  CHECK(std::isnan(stored(path, "/aa/numerator_error").second[4]));
  CHECK(stored(path, "/aa/normalizer_error").second == first.normalizer_error);
  CHECK(stored(path, "/aa/kept_mass").second == first.kept_mass);
  CHECK(stored(path, "/bb/kept_mass").second == second.kept_mass);
}

TEST_CASE("a cell is in the file as soon as it is written") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  RowsFile file(path);
  file.write("aa", 1, rows_of({1, 2}, 1, 0.0));
  std::filesystem::copy_file(path, folder.file("copy.h5"));
  CHECK(RowsFile(folder.file("copy.h5")).has("aa"));
}

TEST_CASE("a file that cannot be read is set aside, a place that cannot be written refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("results.rows.h5");
  std::ofstream(path) << "torn";
  {
    RowsFile file(path);
    CHECK(file.started_anew());
    CHECK_FALSE(file.has("aa"));
    file.write("aa", 1, rows_of({1}, 1, 0.0));
  }
  CHECK(std::filesystem::exists(path + ".damaged"));
  CHECK(RowsFile(path).has("aa"));
  CHECK(says(faults_of([&] { RowsFile file(folder.file("none/rows.h5")); }),
             {folder.file("none/rows.h5"), "cannot be written"}));
}
