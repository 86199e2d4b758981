// Groups of very many members, as the root of results.rows.h5 is.
#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "dump/small_dump.hpp"
#include "hdf5/hdf5.hpp"

using namespace kvbench;

namespace listing_test {

constexpr std::size_t kMembers = 5000;

// Links to one group, in a file.
hdf5::Handle file_of_links(const std::string& path, hdf5::Objects objects,
                           std::size_t members = kMembers) {
  hdf5::Handle file = hdf5::create_file(path, objects);
  const hdf5::Handle group = hdf5::create_group(file.get(), "m0");
  for (std::size_t i = 1; i < members; ++i) {
    const std::string name = "m" + std::to_string(i);
    hdf5::check(
        H5Lcreate_hard(file.get(), "m0", file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  }
  return file;
}

TEST_CASE("all members of a large group are visited, each once, until a visit throws") {
  const TemporaryFolder folder;
  const hdf5::Session session;
  for (const auto objects : {hdf5::Objects::kThousands, hdf5::Objects::kMillions}) {
    const hdf5::Handle file = file_of_links(folder.file("many.h5"), objects);
    std::vector<std::string> names;
    hdf5::each_child(file.get(), std::uint64_t{1} << 30,
                     [&](const std::string& name) { names.push_back(name); });
    REQUIRE(names.size() == kMembers);
    std::sort(names.begin(), names.end());
    CHECK(names == hdf5::children(file.get()));
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
    std::size_t visits = 0;
    const auto end = [&](const std::string&) {
      if (++visits == 7) throw std::domain_error("the seventh");
    };
    CHECK_THROWS_AS(hdf5::each_child(file.get(), std::uint64_t{1} << 30, end), std::domain_error);
    CHECK(visits == 7);
  }
}

TEST_CASE("a listing that goes on after more members than the file has room for is an error") {
  const TemporaryFolder folder;
  const hdf5::Session session;
  const hdf5::Handle file = file_of_links(folder.file("many.h5"), hdf5::Objects::kThousands);
  std::size_t visits = 0;
  const auto count = [&](const std::string&) { ++visits; };
  hdf5::each_child(file.get(), 16 * kMembers, count);
  CHECK(visits == kMembers);
  CHECK_THROWS_WITH_AS(hdf5::each_child(file.get(), 16 * kMembers - 16, count),
                       doctest::Contains("more members than the file has room for"), hdf5::Error);
}

// Else every access reads all names again.
TEST_CASE("names of the oldest format fit a cache that is limited") {
  const TemporaryFolder folder;
  const hdf5::Session session;
  constexpr std::size_t kMany = 20000;
  const auto cache_of = [&](hdf5::Objects format) {
    const std::string path = folder.file("many.h5");
    file_of_links(path, format, kMany);
    const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kRead);
    hdf5::limit_metadata(file.get());
    H5AC_cache_config_t cache;
    cache.version = H5AC__CURR_CACHE_CONFIG_VERSION;
    hdf5::check(H5Fget_mdc_config(file.get(), &cache));
    return cache.max_size;
  };
  constexpr std::size_t kHeapOfNames = 40 * kMany;  // 32 letters and an end each, by eights
  CHECK(cache_of(hdf5::Objects::kThousands) >= kHeapOfNames);
  CHECK(cache_of(hdf5::Objects::kMillions) < kHeapOfNames);
}

}  // namespace listing_test
