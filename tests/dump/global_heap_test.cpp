// Texts of variable length: as HDF5 wrote them, and refused where their heap is damaged.
#include "hdf5/global_heap.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace global_heap_test {

// How a file is made.
struct Making {
  hsize_t user_block = 0;
  std::size_t number_bytes = 8;  // of addresses and sizes
};

// Writes the texts as one attribute of the root, by the library alone.
void write_texts(const std::string& path, const std::vector<std::string>& texts,
                 const Making& making = {}) {
  const hdf5::Session session;
  const hdf5::Handle creation(H5Pcreate(H5P_FILE_CREATE));
  hdf5::check(H5Pset_userblock(creation.get(), making.user_block));
  hdf5::check(H5Pset_sizes(creation.get(), making.number_bytes, making.number_bytes));
  const hdf5::Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), H5P_DEFAULT));
  const hdf5::Handle type(H5Tcopy(H5T_C_S1));
  hdf5::check(H5Tset_size(type.get(), H5T_VARIABLE));
  const hsize_t count = texts.size();
  const hdf5::Handle space(H5Screate_simple(1, &count, nullptr));
  const hdf5::Handle attribute(
      H5Acreate2(file.get(), "texts", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  hdf5::check(H5Awrite(attribute.get(), type.get(), pointers.data()));
}

constexpr std::uint64_t kMost = 1 << 20;

std::vector<std::string> read_texts(const std::string& path, std::size_t count) {
  const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kReadUnlocked);
  const hdf5::Handle attribute(H5Aopen(file.get(), "texts", H5P_DEFAULT));
  return hdf5::read_heap_texts(attribute.get(), count, kMost);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Changes the bytes of a file from its first global heap on.
void change_heap(const std::string& path, const std::function<void(char* heap)>& change) {
  std::string bytes = read_text(path);
  const std::size_t heap = bytes.find("GCOL");
  REQUIRE(heap != std::string::npos);
  change(bytes.data() + heap);
  std::ofstream(path, std::ios::binary) << bytes;
}

constexpr std::size_t kHeapSize = 8, kFirstIndex = 16, kFirstSize = 24;  // where they are

std::string number(std::uint64_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

void put(char* at, std::uint64_t number) { std::memcpy(at, &number, sizeof number); }

TEST_CASE("texts are read as HDF5 wrote them") {
  const TemporaryFolder folder;
  const std::string path = folder.file("texts.h5");
  const std::vector<std::string> texts = {
      "a", "", "seven b", std::string(5000, 'x'), std::string(300000, 'y'), "eight by"};
  for (const Making& making : {Making{}, Making{.user_block = 512}, Making{.number_bytes = 4}}) {
    CAPTURE(making.user_block);
    CAPTURE(making.number_bytes);
    write_texts(path, texts, making);
    CHECK(read_texts(path, texts.size()) == texts);
  }
  std::vector<std::string> many;  // in several heaps
  for (int i = 0; i < 4000; ++i) many.push_back("text " + std::to_string(i));
  write_texts(path, many);
  CHECK(read_texts(path, many.size()) == many);
}

TEST_CASE("texts that are larger than allowed together are not read") {
  const TemporaryFolder folder;
  const std::string path = folder.file("texts.h5");
  const std::string half(kMost / 2, 'x');
  write_texts(path, {half, half});
  CHECK_NOTHROW(read_texts(path, 2));
  write_texts(path, {half, half + "x"});
  CHECK_THROWS_WITH_AS(read_texts(path, 2), doctest::Contains("more than 1048576 bytes"),
                       hdf5::Error);
}

// In a sound file heaps lie side by side, and each is read once.
TEST_CASE("heaps that are read again and again, or lie in each other, come to an end") {
  const TemporaryFolder folder;
  const std::string path = folder.file("texts.h5");
  const std::string text(kMost / 2, 'x');
  write_texts(path, {text, "short"});
  {
    const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kReadUnlocked);
    const hdf5::Handle attribute(H5Aopen(file.get(), "texts", H5P_DEFAULT));
    for (int i = 0; i < 1000; ++i) {
      CHECK(hdf5::read_heap_texts(attribute.get(), 2, kMost).back() == "short");
    }
  }
  // A hundred heaps of a MiB, each a little behind the one before, with a text of 17 bytes each.
  constexpr std::size_t kCount = 100, kStep = 64, kSize = 1 << 20, kText = 17;
  write_texts(path, std::vector<std::string>(kCount, std::string(kText, 'x')));
  std::string bytes = read_text(path);
  const std::string begin = std::string("\x11\0\0\0", 4) + number(bytes.find("GCOL"));
  const std::size_t references = bytes.find(begin);
  REQUIRE(references != std::string::npos);
  const std::size_t heaps = bytes.size();
  bytes.resize(heaps + kCount * kStep + kSize);
  for (std::size_t i = 0; i < kCount; ++i) {
    bytes.replace(heaps + i * kStep, 5, "GCOL\1");
    char* heap = bytes.data() + heaps + i * kStep;
    put(heap + kHeapSize, kSize);
    heap[kFirstIndex] = 1;
    put(heap + kFirstSize, kText);
    const std::string reference =
        begin.substr(0, 4) + number(heaps + i * kStep) + std::string("\1\0\0\0", 4);
    bytes.replace(references + reference.size() * i, reference.size(), reference);
  }
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK_THROWS_WITH_AS(read_texts(path, kCount), doctest::Contains("of more than 64 MiB"),
                       hdf5::Error);
}

TEST_CASE("a dump with a damaged heap of texts is refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.file("damaged.h5");
  const auto refusal = [&](const std::function<void(char* heap)>& change) {
    write_small_dump(path);
    change_heap(path, change);
    return errors_of([&] { Dump dump(path); });
  };
  CHECK(refusal([](char*) {}).empty());
  // The library copies as many bytes as an object claims into room for the text that it expects.
  for (const std::uint64_t size :
       {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0} - 64}) {
    CHECK(says(refusal([&](char* heap) { put(heap + kFirstSize, size); }),
               {path, "a text's heap at byte ",
                "an object of " + std::to_string(size) + " bytes, beyond its end"}));
  }
  CHECK(says(refusal([](char* heap) { put(heap + kFirstSize, 1); }),
             {path, " has 1 bytes for a text of 12"}));
  CHECK(says(refusal([](char* heap) { heap[kFirstIndex] = 99; }), {path, " has no object 1"}));
  CHECK(says(refusal([](char* heap) { heap[0] = 'X'; }), {path, " is none"}));
  CHECK(says(refusal([](char* heap) { heap[4] = 9; }), {path, " is none"}));  // its version
  CHECK(says(refusal([](char* heap) { put(heap + kHeapSize, 8); }), {path, " is of 8 bytes"}));
  CHECK(says(refusal([](char* heap) { put(heap + kHeapSize, std::uint64_t{1} << 30); }),
             {path, " is of 1073741824 bytes"}));
  CHECK(says(refusal([](char* heap) { put(heap + kHeapSize, 1 << 20); }),
             {path, " reaches beyond the end of the file"}));
}

}  // namespace global_heap_test
