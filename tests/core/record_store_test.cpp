// The store of millions of records: places by hash, and bytes in a file without a name.
#include "system/record_store.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "system/key_index.hpp"

namespace kvbench::test {
namespace record_store_test {

TEST_CASE("a key as text is read back, and nothing else is read") {
  const Key128 key{0x0123456789abcdefU, 0xfedcba9876543210U};
  CHECK(key.text() == "0123456789abcdeffedcba9876543210");
  CHECK(Key128::from_text(key.text()) == key);
  CHECK(!Key128::from_text("0123456789ABCDEFfedcba9876543210"));
  CHECK(!Key128::from_text("0123456789abcdef"));
  CHECK(!Key128::from_text(key.text() + "0"));
  // XXH3 of an empty text, as its authors give it.
  CHECK(hash128("").text() == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("keys have the places in which they came") {
  KeyIndex index;
  CHECK(!index.find(hash128("0")));
  for (std::size_t i = 0; i < 50'000; ++i) {
    CHECK(index.add(hash128(std::to_string(i))) == std::pair(i, true));
    CHECK(index.add(hash128(std::to_string(i / 2))) == std::pair(i / 2, false));
  }
  CHECK(index.size() == 50'000);
  for (std::size_t i = 0; i < 60'000; ++i) {
    const auto found = index.find(hash128(std::to_string(i)));
    CHECK(found == (i < 50'000 ? std::optional(i) : std::nullopt));
  }
  KeyIndex alike;  // all of them want the same slot
  for (std::uint64_t i = 0; i < 500; ++i) CHECK(alike.add({i, 7}).second);
  for (std::uint64_t i = 0; i < 500; ++i) CHECK(alike.find({i, 7}) == i);
  CHECK(!alike.find({500, 7}));
}

std::string record_of(std::size_t i) {
  return std::string(i * 7919 % 3000, static_cast<char>('a' + i % 26)) + std::to_string(i);
}

TEST_CASE("records are read back in any order, and leave no file") {
  std::string folder = (std::filesystem::temp_directory_path() / "kvbench-store-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  constexpr std::size_t kRecords = 12'000;  // 18 MB: most of them are in the file
  RecordStore store(folder);
  for (std::size_t i = 0; i < kRecords; ++i) CHECK(store.add(record_of(i)) == i);
  CHECK(store.size() == kRecords);
  CHECK(std::filesystem::is_empty(folder));

  std::vector<std::size_t> order(kRecords);
  for (std::size_t i = 0; i < kRecords; ++i) order[i] = i;
  RecordStore::Reader reader(store);
  const auto all_are_right = [&] {
    return std::all_of(order.begin(), order.end(),
                       [&](std::size_t i) { return reader.at(i) == record_of(i); });
  };
  CHECK(all_are_right());
  std::reverse(order.begin(), order.end());
  CHECK(all_are_right());
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  CHECK(all_are_right());
  std::filesystem::remove_all(folder);
}

TEST_CASE("a folder that takes no file is an error that names it") {
  RecordStore store("/nowhere/at/all");
  const std::string large(1 << 20, 'x');
  CHECK_NOTHROW(store.add(large));  // memory holds it
  CHECK_THROWS_WITH_AS(
      [&] {
        for (int i = 0; i < 8; ++i) store.add(large);
      }(),
      doctest::Contains("/nowhere/at/all: cannot write a temporary file"), IoError);
}

}  // namespace record_store_test
}  // namespace kvbench::test
