// Structures that are right; wrong ones are in tests/cli/bad_inputs/dumps.json.
#include "dump/structure.hpp"

#include <doctest/doctest.h>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace structure_test {

const std::string kLayer = "/sequences/text/layers/3";

TEST_CASE("the memory of a stream has the norms of its values, too") {
  const TemporaryFolder folder;
  const std::string path = folder.file("norms.h5");
  write_small_dump(path);  // G = 2, n = 12, Nq = 7, d = 4, dv = 6; contiguous
  const double without = 8.0 * (12 * (4 + 6) + 2 * 7 * 4);
  const double norms = 8.0 * 2 * 12;
  const auto refused = [&](double memory) {
    const hdf5::Session session;
    const hdf5::Handle file = hdf5::open_file(path, hdf5::Access::kReadUnlocked);
    StructureReading reading;
    reading.memory = static_cast<std::uint64_t>(memory);
    return says(errors_of([&] { read_structure(file.get(), path, reading); }),
                {kLayer, "one KV head with its queries needs"});
  };
  CHECK(refused(without - 1));
  CHECK_FALSE(refused(without));
  edit(path, [](hid_t f) { replace_dataset(f, kLayer + "/wo_v_l1", {4, 12, 1}, H5T_IEEE_F32LE); });
  CHECK(refused(without + norms - 1));
  CHECK_FALSE(refused(without + norms));
}

TEST_CASE("an 8-bit float, which h5py does not write, is refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    const hdf5::Handle type(H5Tcopy(H5T_IEEE_F32LE));
    hdf5::check(H5Tset_fields(type.get(), 7, 3, 4, 0, 3));
    hdf5::check(H5Tset_size(type.get(), 1));
    hdf5::check(H5Tset_ebias(type.get(), 7));
    replace_dataset(f, kLayer + "/v", {2, 12, 6}, type.get());
  });
  CHECK(says(errors_of([&] { Dump dump(path); }),
             {path, kLayer + "/v", "1-byte floating-point", "unknown layout"}));
}

TEST_CASE("attributes in other storage mean the same") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    set_attribute(f, "/", "n_layers", 4.0);
    set_attribute(f, kLayer, "logit_softcap", std::int64_t{30});
    // A fixed-length string, padded with spaces.
    remove_attribute(f, "/", "format");
    const hdf5::Handle root = hdf5::open_group(f, "/");
    const hdf5::Handle type(H5Tcopy(H5T_FORTRAN_S1));
    hdf5::check(H5Tset_size(type.get(), 16));
    const hdf5::Handle space(H5Screate(H5S_SCALAR));
    const hdf5::Handle format(
        H5Acreate2(root.get(), "format", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
    hdf5::check(H5Awrite(format.get(), type.get(), "kvbench-dump    "));
    // An array of one.
    remove_attribute(f, kLayer, "sliding_window");
    const hdf5::Handle layer = hdf5::open_group(f, kLayer);
    const hsize_t one = 1;
    const hdf5::Handle array(H5Screate_simple(1, &one, nullptr));
    const hdf5::Handle window(H5Acreate2(layer.get(), "sliding_window", H5T_STD_I16BE, array.get(),
                                         H5P_DEFAULT, H5P_DEFAULT));
    const std::int64_t value = 8;
    hdf5::check(H5Awrite(window.get(), H5T_NATIVE_INT64, &value));
  });
  const Dump dump(path);
  CHECK(dump.info().n_layers == 4);
  CHECK(dump.info().sequences[0].find_layer(3)->window == 8);
  CHECK(dump.info().sequences[0].find_layer(3)->softcap == 30.0);
}

}  // namespace structure_test
