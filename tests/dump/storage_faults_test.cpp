// Tensors that were not written, filters that are missing, and memory that reading takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "system/memory_limit.hpp"

using namespace kvbench;

namespace storage_faults_test {

const std::string kLayer = "/sequences/text/layers/3";

std::vector<std::string> refusal_of(const std::string& path, const DumpOptions& options = {}) {
  return errors_of([&] { Dump dump(path, options); });
}

enum class Storage { kHoles, kNeverWritten };

// A dataset of zeros: holes in the file, or nothing at all.
void replace_by_chunks(hid_t file, const std::string& name, const std::vector<hsize_t>& dims,
                       const std::vector<hsize_t>& chunk, Storage storage = Storage::kHoles) {
  if (hdf5::has_link(file, name)) remove_link(file, name);
  const std::vector<hsize_t> most(dims.size(), H5S_UNLIMITED);
  const hdf5::Handle space(
      H5Screate_simple(static_cast<int>(dims.size()), dims.data(), most.data()));
  const hdf5::Handle properties = hdf5::dataset_properties();
  hdf5::check(H5Pset_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data()));
  if (storage == Storage::kHoles) {
    hdf5::check(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY));
  }
  const hdf5::Handle dataset(H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space.get(),
                                        H5P_DEFAULT, properties.get(), H5P_DEFAULT));
}

constexpr H5Z_filter_t kFilter = 300;  // number in the range that is free for tests

std::size_t halve(unsigned flags, std::size_t, const unsigned*, std::size_t bytes, std::size_t*,
                  void**) {
  return (flags & H5Z_FLAG_REVERSE) != 0 ? 2 * bytes : bytes / 2;
}

// A layer's keys written through a filter that the library has no more.
void write_filtered(const std::string& path, unsigned flags, bool compresses) {
  write_small_dump(path);
  const H5Z_class2_t filter{.version = H5Z_CLASS_T_VERS,
                            .id = kFilter,
                            .encoder_present = 1,
                            .decoder_present = 1,
                            .name = "halving",
                            .can_apply = nullptr,
                            .set_local = nullptr,
                            .filter = halve};
  H5Z_class2_t refusing = filter;
  refusing.filter = [](unsigned, std::size_t, const unsigned*, std::size_t, std::size_t*,
                       void**) -> std::size_t { return 0; };
  hdf5::check(H5Zregister(compresses ? &filter : &refusing));
  edit(path, [&](hid_t f) {
    const std::string name = kLayer + "/k";
    remove_link(f, name);
    const hsize_t dims[] = {2, 12, 4};
    const hdf5::Handle space(H5Screate_simple(3, dims, nullptr));
    const hdf5::Handle properties = hdf5::dataset_properties();
    hdf5::check(H5Pset_chunk(properties.get(), 3, dims));
    hdf5::check(H5Pset_filter(properties.get(), kFilter, flags, 0, nullptr));
    const hdf5::Handle dataset(H5Dcreate2(f, name.c_str(), H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                                          properties.get(), H5P_DEFAULT));
    const std::vector<float> ones(2 * 12 * 4, 1.0F);
    hdf5::check(
        H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, ones.data()));
  });
  hdf5::check(H5Zunregister(kFilter));
}

TEST_CASE("a filter that the library lacks is named, with what to do") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  for (const unsigned flags : {unsigned{H5Z_FLAG_MANDATORY}, unsigned{H5Z_FLAG_OPTIONAL}}) {
    write_filtered(path, flags, true);
    CHECK(says(refusal_of(path), {path, kLayer + "/k: ", "filter 300", "h5repack -f GZIP=4"}));
  }
  // An optional filter that made nothing smaller was left out, and is not wanted now.
  write_filtered(path, H5Z_FLAG_OPTIONAL, false);
  CHECK(refusal_of(path).empty());
  CHECK(Dump(path).read_stream("text", 3, 1)->keys.back() == 1.0);
}

TEST_CASE("tensors that were never written, in part or whole, are not read as zeros") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    replace_by_chunks(f, kLayer + "/k", {2, 12, 4}, {1, 5, 4}, Storage::kNeverWritten);
    const hdf5::Handle dataset(H5Dopen2(f, (kLayer + "/k").c_str(), H5P_DEFAULT));
    const std::array<float, 20> ones{};
    const std::array<hsize_t, 3> at = {1, 5, 0};
    hdf5::check(H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 0, at.data(), sizeof ones, ones.data()));
    const auto only_shape = [&](const std::string& name, const std::vector<hsize_t>& dims) {
      remove_link(f, name);
      const hdf5::Handle space(
          H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
      const hdf5::Handle contiguous(H5Dcreate2(f, name.c_str(), H5T_IEEE_F32LE, space.get(),
                                               H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    };
    only_shape(kLayer + "/v", {2, 12, 6});
    only_shape("/rope/inv_freq", {2});
  });
  const auto messages = refusal_of(path);
  CHECK(says(messages, {path, kLayer + "/k: lacks 5 of 6 chunks", "never written"}));
  CHECK(says(messages, {path, kLayer + "/v: was never written, of shape [2, 12, 6]"}));
  CHECK(says(messages, {path, "/rope/inv_freq: was never written, of shape [2]"}));
}

TEST_CASE("memory for decoding chunks is held against the limit") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    replace_by_chunks(f, kLayer + "/k", {2, 12, 4}, {1, hsize_t{1} << 20, 4});  // 16 MiB
  });
  const Dump dump(path);
  const std::uint64_t bytes = dump.info().sequences[0].find_layer(3)->chunk_bytes;
  CHECK(bytes >= 16 << 20);
  CHECK(bytes < 64 << 20);
  CHECK(refusal_of(path, {.memory_limit = bytes}).empty());
  CHECK(says(refusal_of(path, {.memory_limit = bytes - 1}),
             {path, kLayer + ": ", "decoding its chunks", "limit", "h5repack"}));
  CHECK(dump.info().sequences[0].find_layer(1)->chunk_bytes == 0);  // contiguous
}

TEST_CASE("memory for what is read beside the streams is held against the limits") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  const DumpOptions limit{.memory_limit = 64 << 20};
  const auto refusal = [&](const std::string& name, const std::vector<hsize_t>& dims,
                           const std::vector<hsize_t>& chunk, const DumpOptions& options = {}) {
    write_small_dump(path);
    edit(path, [&](hid_t f) { replace_by_chunks(f, kLayer + name, dims, chunk); });
    return refusal_of(path, options);
  };
  const auto wide = refusal("/wo", {4, 6, 1 << 25}, {1, 1, 1 << 16}, limit);  // rows of 128 MiB
  CHECK(says(wide, {path, kLayer + "/wo: ", "a row", "64 MiB", "raise the limit"}));
  CHECK(refusal("/wo", {4, 6, 1 << 20}, {1, 1, 1 << 16}, limit).empty());
  const auto chunk = refusal("/wo", {4, 6, 1 << 22}, {1, 6, 1 << 22}, limit);  // 96 MiB
  CHECK(says(chunk, {path, kLayer + "/wo: ", "decoding its chunks", "h5repack"}));
  constexpr hsize_t kMaxDimension = std::numeric_limits<std::int32_t>::max();
  if (usable_memory() < 6 * kMaxDimension * sizeof(double)) {  // 96 GiB, of one head
    write_small_dump(path);
    edit(path, [](hid_t f) {
      replace_dataset(f, kLayer + "/wo", {4, 6, kMaxDimension}, H5T_IEEE_F32LE);
    });
    const auto head = refusal_of(path);
    CHECK(says(head, {path, kLayer + "/wo: ", "one head of it", "GiB"}));
  }
  const auto out = refusal("/out", {4, 3, 6}, {4, 3, 6}, {.memory_limit = 1000});
  CHECK(says(out, {path, kLayer + "/out: ", "decoding its chunks"}));
}

}  // namespace storage_faults_test
