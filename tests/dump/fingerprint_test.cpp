#include "dump/fingerprint.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "dump/structure.hpp"
#include "hdf5/open_file.hpp"
#include "system/error.hpp"

using namespace kvbench;

namespace fingerprint_test {

const std::string kLayer = "/sequences/text/layers/3";

std::string fingerprint(const std::string& path) { return Dump(path).fingerprint(); }

std::string sampled(const std::string& path, std::uint64_t hashed_whole) {
  const hdf5::Handle file = open_dump_file(path);
  return read_content(file.get(), read_structure(file.get(), path, {}), hashed_whole, [] {})
      .fingerprint;
}

void hash_by_tensor(hid_t file) {
  set_attribute(file, "/", "fingerprint", std::string("by tensor"));
}

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

TEST_CASE("path, time, chunking and compression do not touch the fingerprint") {
  const TemporaryFolder folder;
  write_small_dump(folder.file("plain.h5"));
  const std::string plain = fingerprint(folder.file("plain.h5"));
  CHECK(plain.size() == 32);
  CHECK(plain == fingerprint(folder.file("plain.h5")));
  OtherStorage storage;
  for (const int chunk_rows : {0, 3, 5, 100}) {
    for (const int gzip : {0, 1, 9}) {
      storage.storage.chunk_rows = chunk_rows;
      storage.storage.gzip = gzip;
      storage.chunk_heads = chunk_rows % 2 == 0 ? 1 : 2;
      write_small_dump(folder.file("other.h5"), storage);
      CHECK(fingerprint(folder.file("other.h5")) == plain);
    }
  }
  edit(folder.file("plain.h5"),
       [](hid_t f) { set_attribute(f, "/", "created", std::string("2024-01-01T00:00:00Z")); });
  CHECK(fingerprint(folder.file("plain.h5")) == plain);
}

TEST_CASE("every part of the content changes the fingerprint") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  const std::vector<std::function<void(hid_t)>> changes = {
      [](hid_t) {},
      [](hid_t f) { set_attribute(f, "/", "model", std::string("other")); },
      [](hid_t f) { set_attribute(f, "/", "dataset", std::string("")); },
      [](hid_t f) { set_attribute(f, "/sequences/text", "prompt_tokens", std::int64_t{6}); },
      [](hid_t f) { set_attribute(f, kLayer, "scale", 0.5 + 0x1p-53); },
      [](hid_t f) { set_attribute(f, "/rope", "theta", 10001.0); },
      [](hid_t f) { set_element(f, "/rope/inv_freq", {1}, 0.02); },
      [](hid_t f) { set_element(f, "/sequences/text/token_ids", {3}, 8.0); },
      // The last bit of one element of each tensor.
      [](hid_t f) {
        set_element(f, kLayer + "/q", {3, 6, 3}, planted("q", 3, 6, 3) * (1 + 0x1p-10));
      },
      [](hid_t f) {
        set_element(f, kLayer + "/k", {1, 11, 3}, planted("k", 1, 11, 3) * (1 + 0x1p-10));
      },
      [](hid_t f) {
        set_element(f, kLayer + "/v", {0, 0, 0}, planted("v", 0, 0, 0) * (1 + 0x1p-10));
      },
      [](hid_t f) {
        set_element(f, kLayer + "/out", {0, 2, 5}, planted("out", 0, 2, 5) * (1 + 0x1p-23));
      },
      [](hid_t f) { replace_dataset(f, kLayer + "/wo_v_l1", {4, 12, 1}, H5T_IEEE_F32LE); },
      [](hid_t f) {
        replace_dataset(f, kLayer + "/wo_v_l1", {4, 12, 1}, H5T_IEEE_F32LE);
        set_element(f, kLayer + "/wo_v_l1", {3, 11, 0}, 0x1p-100);
      },
      [](hid_t f) { remove_link(f, kLayer + "/out"); },
      [](hid_t f) { remove_link(f, "/rope"); },
      [](hid_t f) { remove_link(f, kLayer); },
      [](hid_t f) {
        hdf5::check(
            H5Lmove(f, kLayer.c_str(), f, "/sequences/text/layers/2", H5P_DEFAULT, H5P_DEFAULT));
      },
      [](hid_t f) {
        hdf5::check(H5Lmove(f, "/sequences/text", f, "/sequences/words", H5P_DEFAULT, H5P_DEFAULT));
      },
  };
  std::set<std::string> seen;
  for (const bool by_tensor : {false, true}) {
    for (std::size_t i = 0; i < changes.size(); ++i) {
      CAPTURE(i);
      write_small_dump(path);
      if (by_tensor) edit(path, hash_by_tensor);
      edit(path, changes[i]);
      CHECK(seen.insert(fingerprint(path)).second);
    }
  }
  StorageOptions storage;
  storage.type = ElementType::kBfloat16;
  write_small_dump(path, storage);
  CHECK(seen.insert(fingerprint(path)).second);
}

TEST_CASE("large dumps are fingerprinted by samples that do not depend on storage") {
  const TemporaryFolder folder;
  LayerLayout layout;
  layout.tokens = layout.query_rows = 20000;  // 10 blocks of 64 KiB per head
  layout.d = layout.dv = 16;
  const auto write = [&](const std::string& path, const StorageOptions& storage) {
    DumpWriter writer(path, {"large", "test", 1}, storage);
    writer.add_sequence("text");
    writer.add_layer(0, layout);
    write_planted(writer, layout);
    writer.finish();
  };
  const std::string path = folder.file("large.h5");
  StorageOptions storage;
  write(path, storage);
  constexpr std::uint64_t kLimit = 1 << 20;  // the tensors take 1.8 MiB
  const std::string by_samples = sampled(path, kLimit);
  CHECK(by_samples != sampled(path, 1 << 21));
  CHECK(sampled(path, 1 << 21) == fingerprint(path));
  storage.gzip = 1;
  storage.chunk_rows = 777;
  write(folder.file("chunked.h5"), storage);
  CHECK(sampled(folder.file("chunked.h5"), kLimit) == by_samples);
  for (const hsize_t row : {hsize_t{0}, hsize_t{19999}}) {
    storage = {};
    write(path, storage);
    edit(path, [&](hid_t f) { set_element(f, "/sequences/text/layers/0/k", {0, row, 0}, 100.0); });
    CHECK(sampled(path, kLimit) != by_samples);
  }
}

TEST_CASE("a dump in memory is the file; an outline has the fingerprint of its hashes") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, hash_by_tensor);
  const std::vector<std::byte> image = bytes_of(path);
  const Dump memory("memory", image);
  CHECK(memory.fingerprint() == fingerprint(path));
  CHECK(memory.info().path == "memory");
  CHECK(memory.read_stream("text", 3, 1)->values == Dump(path).read_stream("text", 3, 1)->values);
  const TensorHashes hashes = memory.tensor_hashes();
  CHECK(hashes.size() == 8);  // q, k, v and out of two layers
  CHECK(hashes.at(kLayer + "/k").size() == 32);

  // Elements that are not read, and two dumps in memory at once.
  edit(path, [](hid_t f) { set_element(f, kLayer + "/k", {1, 11, 3}, 2.0); });
  const std::vector<std::byte> other = bytes_of(path);
  CHECK(Dump("memory", other).fingerprint() != memory.fingerprint());
  CHECK(Dump("memory", other, hashes).fingerprint() == memory.fingerprint());
  TensorHashes fewer = hashes;
  fewer.erase(kLayer + "/v");
  CHECK_THROWS_WITH_AS(Dump("memory", other, fewer).fingerprint(),
                       doctest::Contains((kLayer + "/v: its hash is missing").c_str()), InputError);
}

TEST_CASE("tensors that are hashed alone are sampled by their own size") {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.h5");
  LayerLayout layout;
  layout.tokens = layout.query_rows = 20000;
  layout.d = layout.dv = 16;
  DumpWriter writer(path, {"large", "test", 1}, {});
  writer.add_sequence("text");
  writer.add_layer(0, layout);
  write_planted(writer, layout);
  writer.finish();
  edit(path, hash_by_tensor);
  // A tensor of one head takes 0.6 MiB; a dump's limit is that of 64 tensors.
  CHECK(sampled(path, std::uint64_t{64} << 20) == fingerprint(path));
  CHECK(sampled(path, std::uint64_t{64} << 18) != fingerprint(path));
}

}  // namespace fingerprint_test
