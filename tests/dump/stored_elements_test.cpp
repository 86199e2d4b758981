// Blocks of datasets of any chunks and filters.
#include "hdf5/stored_elements.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace stored_elements_test {

const std::string kKeys = "/sequences/text/layers/3/k";

using Set = std::function<void(hid_t properties)>;
using Dims = std::vector<hsize_t>;

void shuffle(hid_t properties) { hdf5::check(H5Pset_shuffle(properties)); }
void gzip(hid_t properties) { hdf5::check(H5Pset_deflate(properties, 6)); }
void checksum(hid_t properties) { hdf5::check(H5Pset_fletcher32(properties)); }
void whole_edges(hid_t properties) {
  hdf5::check(H5Pset_chunk_opts(properties, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS));
}

struct Made {
  Dims dims;
  Dims chunk;
  hid_t type;
  std::vector<Set> filters;
};

hdf5::Handle make(hid_t file, const std::string& name, const Made& made) {
  const auto rank = static_cast<int>(made.dims.size());
  const hdf5::Handle space(H5Screate_simple(rank, made.dims.data(), nullptr));
  const hdf5::Handle properties = hdf5::dataset_properties();
  hdf5::check(H5Pset_chunk(properties.get(), rank, made.chunk.data()));
  for (const Set& set : made.filters) set(properties.get());
  return hdf5::Handle(H5Dcreate2(file, name.c_str(), made.type, space.get(), H5P_DEFAULT,
                                 properties.get(), H5P_DEFAULT));
}

// A file whose datasets may leave chunks at their edges unfiltered.
hdf5::Handle newest_file(const std::string& path) {
  const hdf5::Handle access(H5Pcreate(H5P_FILE_ACCESS));
  hdf5::check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_LATEST));
  return hdf5::Handle(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
}

// All elements as HDF5 reads them.
std::vector<double> by_library(const hdf5::Handle& dataset, std::size_t count) {
  std::vector<double> values(count);
  hdf5::check(
      H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return values;
}

// The values of a block of an array.
std::vector<double> part_of(const std::vector<double>& values, const Sizes& size,
                            const Block& block) {
  std::vector<double> part;
  for (hsize_t i = 0; i < block.size[0]; ++i) {
    for (hsize_t j = 0; j < block.size[1]; ++j) {
      for (hsize_t k = 0; k < block.size[2]; ++k) {
        const hsize_t row = (block.start[0] + i) * size[1] + block.start[1] + j;
        part.push_back(values[row * size[2] + block.start[2] + k]);
      }
    }
  }
  return part;
}

// The messages of reading the dump's keys, where they were written with filters and chunks are put
// in place of the two that there are.
std::vector<std::string> said_of_keys(const std::string& path, const std::vector<Set>& filters,
                                      const std::vector<std::byte>& chunk) {
  write_small_dump(path);
  edit(path, [&](hid_t file) {
    remove_link(file, kKeys);
    const hdf5::Handle keys = make(file, kKeys, {{2, 12, 4}, {1, 12, 4}, H5T_IEEE_F32LE, filters});
    for (hsize_t head = 0; head < 2; ++head) {
      const hsize_t at[] = {head, 0, 0};
      hdf5::check(H5Dwrite_chunk(keys.get(), H5P_DEFAULT, 0, at, chunk.size(), chunk.data()));
    }
  });
  return errors_of([&] { Dump(path).read_stream("text", 3, 1); });
}

std::vector<std::byte> compressed(const std::vector<std::byte>& bytes) {
  uLongf size = compressBound(bytes.size());
  std::vector<std::byte> out(size);
  REQUIRE(compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                    reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9) == Z_OK);
  out.resize(size);
  return out;
}

constexpr std::size_t kChunkBytes = 12 * 4 * sizeof(float);

TEST_CASE("chunks of any filters, shapes and types are read as HDF5 reads them") {
  const TemporaryFolder folder;
  const std::vector<std::vector<Set>> pipelines = {
      {},
      {gzip},
      {shuffle, gzip},
      {shuffle, gzip, checksum},
      {checksum, shuffle, gzip, checksum},
      {shuffle},
      {checksum},
      {gzip, whole_edges},
  };
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{1000}, {1000}},         {{1000}, {7}},
      {{50, 3}, {16, 2}},       {{4, 33, 5}, {1, 8, 5}},
      {{4, 33, 5}, {3, 33, 2}}, {{2, 900, 3}, {1, 900, 3}},
  };
  const std::vector<hid_t> types = {H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_STD_I16LE, H5T_STD_U8LE};
  int number = 0;
  for (const auto& filters : pipelines) {
    for (const auto& [dims, chunk] : shapes) {
      for (const hid_t type : types) {
        // Newest formats, as only they have unfiltered edges.
        const std::string path = folder.file(std::to_string(++number) + ".h5");
        const hdf5::Handle file = newest_file(path);
        const hdf5::Handle dataset = make(file.get(), "x", {dims, chunk, type, filters});
        std::vector<int> planted(
            std::accumulate(dims.begin(), dims.end(), std::size_t{1}, std::multiplies<>()));
        for (std::size_t i = 0; i < planted.size(); ++i) {
          planted[i] = static_cast<int>(i * i * 7919 % 251);
        }
        hdf5::check(
            H5Dwrite(dataset.get(), H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, planted.data()));
        hdf5::check(H5Fflush(file.get(), H5F_SCOPE_LOCAL));  // chunks are read from the file
        CAPTURE(number);
        const auto all = by_library(dataset, planted.size());
        const StoredElements elements(hdf5::open_dataset(file.get(), "x"));
        REQUIRE(std::equal(all.begin(), all.end(), planted.begin(), planted.end()));
        const Sizes size = elements.all().size;
        for (const Block& block :
             {elements.all(), Block{{size[0] - 1, size[1] / 2, size[2] / 3}, {1, 1, 1}},
              Block{{0, size[1] / 3, size[2] / 2},
                    {size[0], size[1] - size[1] / 3, size[2] - size[2] / 2}}}) {
          std::vector<double> values(block.elements());
          elements.read_as(H5T_NATIVE_DOUBLE, block, values.data());
          CHECK(values == part_of(all, size, block));
        }
        CHECK(all_doubles(hdf5::open_dataset(file.get(), "x")) == all);
      }
    }
  }
}

TEST_CASE("filters that were left out of a chunk are not undone") {
  const TemporaryFolder folder;
  const hdf5::Handle file = hdf5::create_file(folder.file("left_out.h5"));
  const hdf5::Handle dataset =
      make(file.get(), "x", {{12}, {4}, H5T_STD_I32LE, {shuffle, gzip, checksum}});
  const std::vector<int> written = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  hdf5::check(
      H5Dwrite(dataset.get(), H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, written.data()));
  const hsize_t at = 4;
  hdf5::check(H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 7, &at, 16, written.data()));
  hdf5::check(H5Fflush(file.get(), H5F_SCOPE_LOCAL));
  const std::vector<std::int64_t> expected = {1, 2, 3, 4, 1, 2, 3, 4, 9, 10, 11, 12};
  CHECK(all_integers(hdf5::open_dataset(file.get(), "x")) == expected);
}

TEST_CASE("a chunk whose gzip data are cut, or that differs from its checksum, is refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  auto chunk = compressed(std::vector<std::byte>(kChunkBytes));
  CHECK(said_of_keys(path, {gzip}, chunk).empty());
  chunk.pop_back();
  CHECK(says(said_of_keys(path, {gzip}, chunk),
             {path, kKeys + ": head 1, token 0: stored data cannot be read", "damaged"}));
  std::vector<std::byte> zeros(kChunkBytes + 4);  // whose checksum is zero
  CHECK(said_of_keys(path, {checksum}, zeros).empty());
  zeros[17] = std::byte{1};
  CHECK(says(said_of_keys(path, {checksum}, zeros), {kKeys, "cannot be read", "damaged"}));
}

}  // namespace stored_elements_test
