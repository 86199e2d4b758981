// Groups of very many members, as the root of results.rows.h5 is.
#include <doctest/doctest.h>

#include <algorithm>

#include "dump/hdf5.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace {

constexpr std::size_t kMembers = 5000;

// Links to one group, in a file.
hdf5::Handle file_of_links(const std::string& path) {
  hdf5::Handle file = hdf5::create_file(path);
  const hdf5::Handle group = hdf5::create_group(file.get(), "m0");
  for (std::size_t i = 1; i < kMembers; ++i) {
    const std::string name = "m" + std::to_string(i);
    hdf5::check(
        H5Lcreate_hard(file.get(), "m0", file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  }
  return file;
}

}  // namespace

TEST_CASE("a long listing has a step every thousand members, so that no limit on one meets it") {
  const TemporaryFolder folder;
  const hdf5::Session session;
  const hdf5::Handle file = file_of_links(folder.file("many.h5"));
  std::size_t steps = 0;
  const auto names = hdf5::children(file.get(), std::uint64_t{1} << 30, [&] { ++steps; });
  REQUIRE(names.size() == kMembers);
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(names == hdf5::children(file.get()));
  CHECK(steps > kMembers / 1100);
}

TEST_CASE("a listing that goes on after more members than the file has room for is an error") {
  const TemporaryFolder folder;
  const hdf5::Session session;
  const hdf5::Handle file = file_of_links(folder.file("many.h5"));
  CHECK(hdf5::children(file.get(), 16 * kMembers, [] {}).size() == kMembers);
  CHECK_THROWS_WITH_AS(hdf5::children(file.get(), 16 * kMembers - 16, [] {}),
                       doctest::Contains("more members than the file has room for"), hdf5::Error);
}
