// Elements and bytes that went wrong behind a sound structure.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace damage_test {

const std::string kLayer = "/sequences/text/layers/3";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The offset in the file of the first chunk or of the contiguous data of a dataset, and its size.
std::pair<haddr_t, hsize_t> stored_bytes(hid_t file, const std::string& path, hsize_t chunk) {
  const hdf5::Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT));
  const haddr_t contiguous = H5Dget_offset(dataset.get());
  if (contiguous != HADDR_UNDEF) return {contiguous, H5Dget_storage_size(dataset.get())};
  hsize_t offset[3];
  unsigned mask = 0;
  haddr_t address = 0;
  hsize_t size = 0;
  const hdf5::Handle space(H5Dget_space(dataset.get()));
  hdf5::check(H5Dget_chunk_info(dataset.get(), space.get(), chunk, offset, &mask, &address, &size));
  return {address, size};
}

// Writes `now` in every place of the file that has `was`, of the same size; how many there are.
int replace_bytes(const std::string& path, std::string_view was, std::string_view now) {
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  int places = 0;
  for (auto at = bytes.find(was); at != std::string::npos; at = bytes.find(was, at + 1)) {
    bytes.replace(at, was.size(), now);
    ++places;
  }
  std::ofstream(path, std::ios::binary) << bytes;
  return places;
}

TEST_CASE("NaN and infinity are named by dataset, head and token") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  struct Plant {
    std::string tensor;
    std::vector<hsize_t> at;
    double value;
    int kv_head;
    std::vector<std::string> words;
  };
  const std::vector<Plant> plants = {
      {"k", {1, 9, 2}, std::nan(""), 1, {"/k", "head 1", "token 9", "element 2", "NaN"}},
      {"v", {0, 0, 5}, kInfinity, 0, {"/v", "head 0", "token 0", "element 5", "infinite"}},
      {"q", {2, 0, 0}, -kInfinity, 1, {"/q", "head 2", "token 5", "infinite"}},  // row 0 is token 5
  };
  for (const Plant& plant : plants) {
    for (const bool compressed : {false, true}) {
      StorageOptions storage;
      storage.gzip = compressed ? 2 : 0;
      write_small_dump(path, storage);
      edit(path,
           [&](hid_t f) { set_element(f, kLayer + "/" + plant.tensor, plant.at, plant.value); });
      const Dump dump(path);
      auto words = plant.words;
      words[0].insert(0, kLayer).insert(0, path + ": ");
      CHECK(says(errors_of([&] { dump.read_stream("text", 3, plant.kv_head); }), words));
      CHECK(says(errors_of([&] { dump.fingerprint(); }), words));
      CHECK(errors_of([&] { dump.read_stream("text", 3, 1 - plant.kv_head); }).empty());
      CHECK(errors_of([&] { dump.read_stream("text", 1, plant.kv_head); }).empty());
    }
  }
  // Tokens that are not asked for are not looked at.
  write_small_dump(path);
  edit(path, [&](hid_t f) { set_element(f, kLayer + "/k", {0, 9, 0}, kInfinity); });
  CHECK(errors_of([&] { Dump(path).read_stream("text", 3, 0, 9); }).empty());
  write_small_dump(path);
  edit(path, [&](hid_t f) { set_element(f, kLayer + "/out", {3, 1, 0}, std::nan("")); });
  CHECK(
      says(errors_of([&] { Dump(path).read_out("text", 3, 3); }), {"/out", "head 3", "token 10"}));
}

TEST_CASE("in big-endian tensors NaN is found and nothing else is taken for it") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  OtherStorage storage;
  storage.storage.type = ElementType::kFloat32;
  storage.big_endian = true;
  write_small_dump(path, storage);
  CHECK(errors_of([&] { Dump(path).fingerprint(); }).empty());
  edit(path, [&](hid_t f) { set_element(f, kLayer + "/v", {1, 11, 0}, std::nan("")); });
  CHECK(says(errors_of([&] { Dump(path).read_stream("text", 3, 1); }),
             {"/v", "head 1", "token 11", "NaN"}));
}

TEST_CASE("a dump that is cut or written to while it is open is refused, not read as zeros") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  const std::vector<std::string> words = {path, "modified while open"};
  write_small_dump(path);
  {
    const Dump dump(path);
    CHECK(errors_of([&] { dump.read_stream("text", 1, 0); }).empty());
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 64);
    CHECK(says(errors_of([&] { dump.read_stream("text", 3, 1); }), words));
    CHECK(says(errors_of([&] { dump.read_out("text", 3, 3); }), words));
    CHECK(says(errors_of([&] { dump.fingerprint(); }), words));
  }
  write_small_dump(path);
  {
    const Dump dump(path);
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << '\x89';
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    CHECK(says(errors_of([&] { dump.read_stream("text", 1, 0); }), words));
  }
  write_small_dump(path);
  const Dump dump(path);
  std::filesystem::remove(path);  // the open file stays whole
  CHECK(errors_of([&] { dump.read_stream("text", 1, 0); }).empty());
}

TEST_CASE("a chunk that cannot be decoded is named by dataset, head and token") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  StorageOptions storage;
  storage.gzip = 4;
  storage.chunk_rows = 4;
  write_small_dump(path, storage);
  std::pair<haddr_t, hsize_t> bytes;
  edit(path, [&](hid_t f) { bytes = stored_bytes(f, kLayer + "/k", 5); });  // head 1, rows 8 to 11
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(bytes.first));
    file << std::string(bytes.second, '\xff');
  }
  const Dump dump(path);
  const std::vector<std::string> words = {path + ": " + kLayer + "/k", "head 1", "token 8",
                                          "damaged"};
  CHECK(says(errors_of([&] { dump.read_stream("text", 3, 1); }), words));
  CHECK(says(errors_of([&] { dump.fingerprint(); }), words));
  CHECK(errors_of([&] { dump.read_stream("text", 3, 0); }).empty());
  CHECK(errors_of([&] { dump.read_stream("text", 3, 1, 8); }).empty());
}

TEST_CASE("two members of one name are refused, not read as one twice") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    for (const char* copy : {"/sequences/twin_a", "/sequences/twin_b"}) {
      hdf5::check(H5Ocopy(f, "/sequences/text", f, copy, H5P_DEFAULT, H5P_DEFAULT));
    }
  });
  CHECK(errors_of([&] { Dump dump(path); }).empty());
  REQUIRE(replace_bytes(path, "twin_b", "twin_a") == 1);
  CHECK(says(errors_of([&] { Dump dump(path); }), {path, "two members", "twin_a", "damaged"}));
}

}  // namespace damage_test
