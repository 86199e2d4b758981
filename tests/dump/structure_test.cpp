#include "dump/structure.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace structure_test {

const std::string kLayer = "/sequences/text/layers/3";

struct StructureError {
  std::string name;
  std::function<void(hid_t)> plant;
  std::vector<std::string> words;  // all in one message, besides the file's name
};

StructureError missing(const std::string& object, const std::string& attribute) {
  return {"without " + object + " @" + attribute,
          [=](hid_t f) { remove_attribute(f, object, attribute); },
          {object, "attribute " + attribute, "missing"}};
}

template <class T>
StructureError wrong(const std::string& object, const std::string& attribute, const T& value,
                     std::vector<std::string> words) {
  words.insert(words.end(), {object, "attribute " + attribute});
  return {"wrong " + object + " @" + attribute,
          [=](hid_t f) { set_attribute(f, object, attribute, value); }, words};
}

StructureError shaped(const std::string& tensor, const std::vector<hsize_t>& dims,
                      const std::vector<std::string>& words) {
  return {"shape of " + tensor,
          [=](hid_t f) { replace_dataset(f, kLayer + "/" + tensor, dims, H5T_IEEE_F32LE); }, words};
}

StructureError typed(const std::string& name, hid_t type, const std::vector<std::string>& words) {
  return {"type " + name, [=](hid_t f) { replace_dataset(f, kLayer + "/v", {2, 12, 6}, type); },
          words};
}

std::vector<StructureError> all_errors() {
  return {
      missing("/", "format"),
      missing("/", "format_version"),
      missing("/", "model"),
      missing("/", "producer"),
      missing("/", "n_layers"),
      missing(kLayer, "scale"),
      missing(kLayer, "sliding_window"),
      missing(kLayer, "logit_softcap"),
      missing("/rope", "theta"),
      missing("/rope", "layout"),
      missing("/rope", "attention_scaling"),
      wrong("/", "format", std::string("kvdump"), {"kvdump", "kvbench-dump"}),
      wrong("/", "format", 1.0, {"must be a string"}),
      wrong("/", "format_version", std::int64_t{3}, {"is 3", "reads version 1 to 2"}),
      wrong("/", "n_layers", std::int64_t{0}, {"at least 1"}),
      wrong("/", "n_layers", 2.5, {"integer"}),
      wrong("/", "model", 3.0, {"must be a string"}),
      wrong("/", "fingerprint", std::string("whole"), {"is \"whole\"", "\"by tensor\""}),
      wrong("/sequences/text", "prompt_tokens", std::int64_t{-1}, {"is -1", "at least 0"}),
      wrong("/sequences/text", "prompt_tokens", std::string("5"), {"integer"}),
      wrong(kLayer, "scale", 0.0, {"above 0"}),
      wrong(kLayer, "scale", -1.0, {"above 0"}),
      wrong(kLayer, "scale", std::string("0.5"), {"number"}),
      wrong(kLayer, "scale", std::numeric_limits<double>::quiet_NaN(), {"finite"}),
      wrong(kLayer, "sliding_window", std::int64_t{-4}, {"is -4", "at least 0"}),
      wrong(kLayer, "sliding_window", 1.5, {"integer"}),
      wrong(kLayer, "logit_softcap", std::numeric_limits<double>::infinity(), {"finite"}),
      wrong(kLayer, "logit_softcap", -2.0, {"at least 0"}),
      wrong("/rope", "layout", std::string("neox"), {"neox", "'half' or 'interleaved'"}),
      {"without q", [](hid_t f) { remove_link(f, kLayer + "/q"); }, {kLayer + "/q", "missing"}},
      {"without k", [](hid_t f) { remove_link(f, kLayer + "/k"); }, {kLayer + "/k", "missing"}},
      {"without v", [](hid_t f) { remove_link(f, kLayer + "/v"); }, {kLayer + "/v", "missing"}},
      {"v is a group",
       [](hid_t f) {
         remove_link(f, kLayer + "/v");
         hdf5::create_group(f, kLayer + "/v");
       },
       {kLayer + "/v", "is not a dataset"}},
      {"without inv_freq",
       [](hid_t f) { remove_link(f, "/rope/inv_freq"); },
       {"/rope/inv_freq", "missing"}},
      {"a rope that leads nowhere",
       [](hid_t f) {
         remove_link(f, "/rope");
         hdf5::check(H5Lcreate_soft("/none", f, "/rope", H5P_DEFAULT, H5P_DEFAULT));
       },
       {"rope", "cannot be read", "damaged"}},
      {"inv_freq longer than d / 2",
       [](hid_t f) { replace_dataset(f, "/rope/inv_freq", {3}, H5T_IEEE_F64LE); },
       {"/rope", "6 dimensions", "d = 4"}},
      {"inv_freq of integers",
       [](hid_t f) { replace_dataset(f, "/rope/inv_freq", {2}, H5T_STD_I32LE); },
       {"/rope/inv_freq", "float64"}},
      {"without sequences",
       [](hid_t f) { remove_link(f, "/sequences"); },
       {"/sequences", "missing"}},
      {"no sequence",
       [](hid_t f) { remove_link(f, "/sequences/text"); },
       {"/sequences", "no sequence"}},
      {"without layers",
       [](hid_t f) { remove_link(f, "/sequences/text/layers"); },
       {"/sequences/text/layers", "missing"}},
      {"no layer",
       [](hid_t f) {
         remove_link(f, kLayer);
         remove_link(f, "/sequences/text/layers/1");
       },
       {"/sequences/text/layers", "no layer"}},
      {"layer with a leading zero",
       [](hid_t f) {
         hdf5::check(
             H5Lmove(f, kLayer.c_str(), f, "/sequences/text/layers/03", H5P_DEFAULT, H5P_DEFAULT));
       },
       {"/sequences/text/layers/03", "decimal"}},
      {"layer that the model has not",
       [](hid_t f) {
         hdf5::check(
             H5Lmove(f, kLayer.c_str(), f, "/sequences/text/layers/4", H5P_DEFAULT, H5P_DEFAULT));
       },
       {"/sequences/text/layers/4", "n_layers = 4"}},
      {"token_ids of another length",
       [](hid_t f) { replace_dataset(f, "/sequences/text/token_ids", {11}, H5T_STD_I32LE); },
       {"/sequences/text/token_ids", "11", "12"}},
      {"token_ids of floats",
       [](hid_t f) { replace_dataset(f, "/sequences/text/token_ids", {12}, H5T_IEEE_F32LE); },
       {"/sequences/text/token_ids", "int32"}},
      shaped("q", {4, 7, 5}, {kLayer, "q [4, 7, 5]", "k [2, 12, 4]", "disagree in d"}),
      shaped("q", {4, 13, 4}, {kLayer, "q [4, 13, 4]", "more rows"}),
      shaped("q", {3, 7, 4}, {kLayer, "3 query heads", "multiple of 2 KV heads"}),
      shaped("q", {1, 7, 4}, {kLayer, "1 query heads", "multiple of 2 KV heads"}),
      shaped("q", {4, 0, 4}, {kLayer + "/q", "[4, 0, 4]", "size 0"}),
      shaped("q", {4, 28}, {kLayer + "/q", "2 dimensions", "[Hq, Nq, d]"}),
      shaped("q", {}, {kLayer + "/q", "0 dimensions"}),
      shaped("k", {1, 12, 4}, {kLayer, "k [1, 12, 4]", "v [2, 12, 6]", "disagree"}),
      shaped("k", {2, 11, 4}, {kLayer, "k [2, 11, 4]", "v [2, 12, 6]", "disagree"}),
      shaped("v", {2, 12, 6, 1}, {kLayer + "/v", "4 dimensions"}),
      shaped("out", {2, 3, 6}, {kLayer, "out [2, 3, 6]", "disagree in heads"}),
      shaped("out", {4, 3, 5}, {kLayer, "out [4, 3, 5]", "disagree in dv"}),
      shaped("out", {4, 13, 6}, {kLayer, "out [4, 13, 6]", "more rows"}),
      shaped("wo_v_l1", {2, 12, 1}, {kLayer, "wo_v_l1 [2, 12, 1]", "must be [4, 12, 1]"}),
      shaped("wo_v_l1", {4, 11, 1}, {kLayer, "wo_v_l1 [4, 11, 1]", "must be [4, 12, 1]"}),
      shaped("wo_v_l1", {4, 12, 6}, {kLayer, "wo_v_l1 [4, 12, 6]", "must be [4, 12, 1]"}),
      shaped("wo_v_l1", {4, 12}, {kLayer + "/wo_v_l1", "2 dimensions", "[Hq, n, 1]"}),
      {"layers of different lengths",
       [](hid_t f) {
         replace_dataset(f, kLayer + "/k", {2, 10, 4}, H5T_IEEE_F32LE);
         replace_dataset(f, kLayer + "/v", {2, 10, 6}, H5T_IEEE_F32LE);
       },
       {kLayer, "10 tokens", "12"}},
      {"sizes that cannot fit in memory",
       [](hid_t f) {
         replace_dataset(f, kLayer + "/k", {2, 1 << 30, 512}, H5T_IEEE_F32LE);
         replace_dataset(f, kLayer + "/v", {2, 1 << 30, 512}, H5T_IEEE_F32LE);
       },
       {kLayer, "memory"}},
      {"a size beyond 2^31",
       [](hid_t f) {
         const std::vector<hsize_t> unlimited = {2, hsize_t{1} << 40, hsize_t{1} << 20};
         const hdf5::Handle space(H5Screate_simple(3, unlimited.data(), nullptr));
         const hdf5::Handle properties(H5Pcreate(H5P_DATASET_CREATE));
         const std::vector<hsize_t> chunk = {1, 16, 16};
         hdf5::check(H5Pset_chunk(properties.get(), 3, chunk.data()));
         remove_link(f, kLayer + "/k");
         const hdf5::Handle dataset(H5Dcreate2(f, (kLayer + "/k").c_str(), H5T_IEEE_F32LE,
                                               space.get(), H5P_DEFAULT, properties.get(),
                                               H5P_DEFAULT));
       },
       {kLayer + "/k", "above 2147483647"}},
      typed("int32", H5T_STD_I32LE, {kLayer + "/v", "non-floating-point elements"}),
      typed("uint16", H5T_STD_U16LE, {kLayer + "/v", "without the attribute dtype"}),
      typed("string", H5T_C_S1, {kLayer + "/v", "non-floating-point elements"}),
      {"uint16 with another dtype",
       [](hid_t f) {
         replace_dataset(f, kLayer + "/v", {2, 12, 6}, H5T_STD_U16LE);
         set_attribute(f, kLayer + "/v", "dtype", std::string("float16"));
       },
       {kLayer + "/v", "dtype = 'float16'"}},
      {"an 8-bit float",
       [](hid_t f) {
         const hdf5::Handle type(H5Tcopy(H5T_IEEE_F32LE));
         hdf5::check(H5Tset_fields(type.get(), 7, 3, 4, 0, 3));
         hdf5::check(H5Tset_size(type.get(), 1));
         hdf5::check(H5Tset_ebias(type.get(), 7));
         replace_dataset(f, kLayer + "/v", {2, 12, 6}, type.get());
       },
       {kLayer + "/v", "1-byte floating-point", "unknown layout"}},
  };
}

TEST_CASE("every fault of structure is refused with file, place and words") {
  const TemporaryFolder folder;
  const std::string path = folder.file("faulty.h5");
  write_small_dump(path);
  REQUIRE(errors_of([&] { Dump dump(path); }).empty());
  for (const StructureError& error : all_errors()) {
    CAPTURE(error.name);
    write_small_dump(path);
    edit(path, error.plant);
    const auto messages = errors_of([&] { Dump dump(path); });
    std::string all;
    for (const std::string& message : messages) all += "\n  " + message;
    CAPTURE(all);
    auto words = error.words;
    words.push_back(path + ": ");
    CHECK(says(messages, words));
    for (const std::string& message : messages) CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("all faults of a dump are reported together") {
  const TemporaryFolder folder;
  const std::string path = folder.file("faulty.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    remove_attribute(f, "/", "model");
    remove_attribute(f, kLayer, "scale");
    remove_link(f, "/sequences/text/layers/1/q");
    replace_dataset(f, kLayer + "/v", {2, 12, 6}, H5T_STD_I32LE);
  });
  const auto messages = errors_of([&] { Dump dump(path); });
  CHECK(messages.size() == 4);
  CHECK(says(messages, {"attribute model"}));
  CHECK(says(messages, {kLayer, "attribute scale"}));
  CHECK(says(messages, {"/sequences/text/layers/1/q"}));
  CHECK(says(messages, {kLayer + "/v"}));
}

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

TEST_CASE("files that are not dumps are refused") {
  const TemporaryFolder folder;
  const auto refused = [](const std::string& path) { return errors_of([&] { Dump dump(path); }); };
  CHECK(says(refused(folder.file("none.h5")), {folder.file("none.h5"), "No such file"}));
  CHECK(says(refused(folder.path().string()), {"directory"}));
  std::ofstream(folder.file("empty.h5")).flush();
  CHECK(says(refused(folder.file("empty.h5")), {folder.file("empty.h5"), "not an HDF5 file"}));
  std::ofstream(folder.file("text.h5")) << std::string(4096, 'x');
  CHECK(says(refused(folder.file("text.h5")), {folder.file("text.h5"), "not an HDF5 file"}));
  {
    const hdf5::Handle other = hdf5::create_file(folder.file("other.h5"));
  }
  const auto other = refused(folder.file("other.h5"));
  CHECK(other.size() == 1);
  CHECK(says(other, {folder.file("other.h5"), "attribute format is missing"}));
}

}  // namespace structure_test
