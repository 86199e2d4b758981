// Virtual datasets of files in the dump's folder are read if that is allowed, and nothing beyond.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "system/file.hpp"

using namespace kvbench;

namespace virtual_test {

const std::string kLayer = "/sequences/text/layers/3";
const std::string kOther = "/sequences/text/layers/1";
constexpr hsize_t kSizes[] = {2, 12, 4};  // of k

// A block of a source at the same block of the virtual dataset.
struct Part {
  std::string file, dataset;
  std::vector<hsize_t> start, size;
};

using Select = std::function<void(hid_t space)>;

void select_block(hid_t space, const std::vector<hsize_t>& start,
                  const std::vector<hsize_t>& size) {
  hdf5::check(
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr));
}

// Puts a virtual dataset of the same shape and type in place of `name`; `map` adds its mappings.
void make_virtual(hid_t file, const std::string& name,
                  const std::function<void(hid_t properties, hid_t space)>& map) {
  const hdf5::Handle old(H5Dopen2(file, name.c_str(), H5P_DEFAULT));
  const hdf5::Handle space(H5Dget_space(old.get()));
  const hdf5::Handle type(H5Dget_type(old.get()));
  const bool is_bfloat16 = hdf5::has_attribute(old.get(), "dtype");
  const hdf5::Handle properties = hdf5::dataset_properties();
  map(properties.get(), space.get());
  remove_link(file, name);
  const hdf5::Handle made(H5Dcreate2(file, name.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                     properties.get(), H5P_DEFAULT));
  if (is_bfloat16) hdf5::write_attribute(made.get(), "dtype", std::string("bfloat16"));
}

void map_parts(hid_t file, const std::string& name, const std::vector<Part>& parts) {
  make_virtual(file, name, [&](hid_t properties, hid_t space) {
    for (const Part& part : parts) {
      const hdf5::Handle block(H5Scopy(space));
      select_block(block.get(), part.start, part.size);
      hdf5::check(H5Pset_virtual(properties, block.get(), part.file.c_str(), part.dataset.c_str(),
                                 block.get()));
    }
  });
}

// Maps all of `name` to a dataset of the same shape.
void map_whole(hid_t file, const std::string& name, const std::string& source,
               const std::string& dataset) {
  make_virtual(file, name, [&](hid_t properties, hid_t space) {
    hdf5::check(H5Pset_virtual(properties, space, source.c_str(), dataset.c_str(), space));
  });
}

// A dump in a folder with two plain copies of itself.
struct MappedDump {
  TemporaryFolder folder;
  std::string path = folder.file("small.h5");

  explicit MappedDump(const StorageOptions& storage = {}) {
    for (const char* name : {"small.h5", "a.h5", "b.h5"}) {
      write_small_dump(folder.file(name), storage);
    }
  }

  std::vector<std::string> refusal() const {
    return errors_of([&] { Dump dump(path, {.allow_virtual = true}); });
  }

  // What becomes of the dump with a change of its own file, undone afterwards.
  std::vector<std::string> refusal_with(const std::function<void(hid_t file)>& change) const {
    write_small_dump(path);
    edit(path, change);
    return refusal();
  }
};

void map_all_tensors(const std::string& path) {
  edit(path, [](hid_t f) {
    map_parts(f, kLayer + "/k",
              {{"a.h5", kLayer + "/k", {0, 0, 0}, {1, 12, 4}},
               {"b.h5", kLayer + "/k", {1, 0, 0}, {1, 12, 4}}});
    map_parts(f, kLayer + "/v",
              {{"b.h5", kLayer + "/v", {0, 0, 0}, {2, 5, 6}},
               {"a.h5", kLayer + "/v", {0, 5, 0}, {2, 7, 6}}});
    map_whole(f, kLayer + "/q", "a.h5", kLayer + "/q");
    map_whole(f, kLayer + "/out", ".", kOther + "/out");
  });
}

void check_equal(const Dump& a, const Dump& b) {
  for (const int layer : {1, 3}) {
    for (int head = 0; head < 2; ++head) {
      for (const Index tokens : {12, 6}) {
        const auto left = a.read_stream("text", layer, head, tokens);
        const auto right = b.read_stream("text", layer, head, tokens);
        CHECK(left->keys == right->keys);
        CHECK(left->values == right->values);
        CHECK(left->queries == right->queries);
      }
    }
    for (int head = 0; head < 4; ++head) {
      CHECK(a.read_out("text", layer, head) == b.read_out("text", layer, head));
    }
  }
}

TEST_CASE("what virtual tensors show is what a plain copy holds, fingerprint included") {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16,
                                 ElementType::kFloat32, ElementType::kFloat64}) {
    for (const int compression : {0, 4}) {
      CAPTURE(element_name(type));
      CAPTURE(compression);
      StorageOptions storage;
      storage.type = type;
      storage.gzip = compression;
      const MappedDump made(storage);
      map_all_tensors(made.path);
      const Dump plain(made.folder.file("a.h5"));
      const Dump mapped(made.path, {.allow_virtual = true});
      CHECK(mapped.fingerprint() == plain.fingerprint());
      check_equal(mapped, plain);
    }
  }
}

TEST_CASE("the fingerprint covers the sources") {
  const MappedDump made;
  map_all_tensors(made.path);
  const auto fingerprint = [&] { return Dump(made.path, {.allow_virtual = true}).fingerprint(); };
  const std::string before = fingerprint();
  edit(made.folder.file("b.h5"), [](hid_t f) { set_element(f, kLayer + "/k", {0, 3, 1}, 0.5); });
  CHECK(fingerprint() == before);  // that element is head 0's, which a.h5 gives
  edit(made.folder.file("b.h5"), [](hid_t f) { set_element(f, kLayer + "/k", {1, 3, 1}, 0.5); });
  CHECK(fingerprint() != before);
}

TEST_CASE("without leave a virtual dataset is refused with the way to allow it") {
  const MappedDump made;
  map_all_tensors(made.path);
  CHECK(says(errors_of([&] { Dump dump(made.path); }),
             {made.path, kLayer + "/k: ", "virtual dataset", "--allow-virtual"}));
}

TEST_CASE("sources are plain files of the dump's own folder") {
  const MappedDump made;
  const auto refusal = [&](const std::string& file) {
    return made.refusal_with([&](hid_t f) { map_whole(f, kLayer + "/k", file, kLayer + "/k"); });
  };
  CHECK(refusal("a.h5").empty());
  const TemporaryFolder elsewhere;
  write_small_dump(elsewhere.file("a.h5"));
  std::filesystem::create_directory(made.folder.file("deeper"));
  std::filesystem::copy(made.folder.file("a.h5"), made.folder.file("deeper/a.h5"));
  for (const std::string& file :
       {elsewhere.file("a.h5"), made.folder.file("a.h5"), std::string("../a.h5"), std::string(".."),
        std::string("deeper/a.h5"), std::string("./a.h5")}) {
    CAPTURE(file);
    CHECK(says(refusal(file), {made.path, kLayer + "/k: ", "'" + file + "'", "folder"}));
  }
  std::filesystem::create_symlink(elsewhere.file("a.h5"), made.folder.file("link.h5"));
  CHECK(says(refusal("link.h5"), {kLayer + "/k: ", "'link.h5'", "symbolic link"}));
  REQUIRE(mkfifo(made.folder.file("pipe.h5").c_str(), 0600) == 0);
  CHECK(says(refusal("pipe.h5"), {kLayer + "/k: ", "pipe.h5", "is not a regular file"}));
  CHECK(says(refusal("deeper"), {kLayer + "/k: ", "deeper", "is a directory"}));
  CHECK(says(refusal("missing.h5"), {kLayer + "/k: ", "missing.h5", "cannot be opened"}));
  std::ofstream(made.folder.file("text.h5")) << "no HDF5";
  CHECK(says(refusal("text.h5"), {kLayer + "/k: ", "text.h5", "not an HDF5 file"}));
  CHECK(says(refusal("a%%b.h5"), {kLayer + "/k: ", "a%%b.h5", "pattern"}));
}

TEST_CASE("files that HDF5 would find elsewhere are not looked for") {
  const MappedDump made;
  const TemporaryFolder elsewhere;
  write_small_dump(elsewhere.file("far.h5"));
  setenv("HDF5_VDS_PREFIX", elsewhere.path().c_str(), 1);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(elsewhere.path());
  CHECK(says(
      made.refusal_with([&](hid_t f) { map_whole(f, kLayer + "/k", "far.h5", kLayer + "/k"); }),
      {"far.h5", "cannot be opened"}));
  std::filesystem::current_path(before);
  unsetenv("HDF5_VDS_PREFIX");
}

TEST_CASE("the folder is that of the file, not of a link to it") {
  const MappedDump made;
  map_all_tensors(made.path);
  const TemporaryFolder elsewhere;
  std::filesystem::create_symlink(made.path, elsewhere.file("link.h5"));
  const Dump dump(elsewhere.file("link.h5"), {.allow_virtual = true});
  CHECK(dump.fingerprint() == Dump(made.folder.file("a.h5")).fingerprint());
}

TEST_CASE("sources hold their elements themselves") {
  const MappedDump made;
  const auto refusal = [&](const std::string& file, const std::string& dataset) {
    return made.refusal_with([&](hid_t f) { map_whole(f, kLayer + "/k", file, dataset); });
  };
  const auto keys = kLayer + "/k";
  // Itself, itself by its file's name, and around a cycle.
  CHECK(says(refusal(".", keys), {keys + ": ", "is itself a virtual dataset"}));
  CHECK(says(refusal("small.h5", keys), {keys + ": ", "is itself a virtual dataset"}));
  edit(made.folder.file("b.h5"), [&](hid_t f) { map_whole(f, keys, "small.h5", keys); });
  CHECK(says(refusal("b.h5", keys), {keys + ": ", "b.h5", "is itself a virtual dataset"}));
  // Another tensor of the dump, by either name.
  CHECK(refusal(".", kOther + "/k").empty());
  CHECK(refusal("small.h5", kOther + "/k").empty());

  edit(made.folder.file("b.h5"), [&](hid_t f) {
    remove_link(f, keys);
    hdf5::check(
        H5Lcreate_external("a.h5", keys.c_str(), f, keys.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  });
  CHECK(says(refusal("b.h5", keys), {keys + ": ", "b.h5", "external link"}));
  edit(made.folder.file("b.h5"), [&](hid_t f) {
    const hdf5::Handle space(H5Screate_simple(3, kSizes, nullptr));
    const hdf5::Handle properties = hdf5::dataset_properties();
    hdf5::check(H5Pset_external(properties.get(), "/etc/passwd", 0, H5F_UNLIMITED));
    const hdf5::Handle like(H5Dopen2(f, (kOther + "/k").c_str(), H5P_DEFAULT));
    const hdf5::Handle type(H5Dget_type(like.get()));
    remove_link(f, keys);
    const hdf5::Handle dataset(H5Dcreate2(f, keys.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                          properties.get(), H5P_DEFAULT));
  });
  CHECK(says(refusal("b.h5", keys), {keys + ": ", "/etc/passwd", "external storage"}));
  CHECK(says(refusal("a.h5", "/nothing"), {keys + ": ", "/nothing", "is not a dataset"}));
  CHECK(says(refusal("a.h5", kLayer), {keys + ": ", "is not a dataset"}));
}

TEST_CASE("a source is a tensor of the same type, whose chunks can be read") {
  const MappedDump made;
  const auto keys = kLayer + "/k";
  const auto refusal_of_source = [&](const std::vector<hsize_t>& sizes, hid_t type) {
    write_small_dump(made.folder.file("b.h5"));
    edit(made.folder.file("b.h5"), [&](hid_t f) { replace_dataset(f, keys, sizes, type); });
    return made.refusal_with([&](hid_t f) { map_whole(f, keys, "b.h5", keys); });
  };
  CHECK(says(refusal_of_source({2, 12, 4}, H5T_IEEE_F64BE), {keys + ": ", "another type"}));
  const hdf5::Handle a = hdf5::open_file(made.folder.file("a.h5"), hdf5::Access::kReadUnlocked);
  const hdf5::Handle like(H5Dopen2(a.get(), keys.c_str(), H5P_DEFAULT));
  const hdf5::Handle type(H5Dget_type(like.get()));
  CHECK(says(refusal_of_source({96}, type.get()), {keys + ": ", "1 dimensions"}));
  CHECK(says(refusal_of_source({2, 11, 4}, type.get()), {keys + ": ", "[2, 11, 4]", "[2, 12, 4]"}));
  CHECK(says(made.refusal_with([&](hid_t f) {
    map_parts(f, keys,
              {{"b.h5", keys, {0, 0, 0}, {1, 12, 4}}, {"a.h5", keys, {1, 0, 0}, {1, 12, 4}}});
  }),
             {keys + ": ", "the block [1, 12, 4] at [0, 0, 0]", "shape is [2, 11, 4]"}));
}

TEST_CASE("a mapping gives every element once, block by block") {
  const MappedDump made;
  const auto keys = kLayer + "/k";
  const auto refusal = [&](const std::vector<Part>& parts) {
    return made.refusal_with([&](hid_t f) { map_parts(f, keys, parts); });
  };
  const auto part = [&](std::vector<hsize_t> start, std::vector<hsize_t> size) {
    return Part{"a.h5", keys, std::move(start), std::move(size)};
  };
  CHECK(refusal({part({0, 0, 0}, {2, 12, 3}), part({0, 0, 3}, {2, 12, 1})}).empty());
  CHECK(says(refusal({part({0, 0, 0}, {2, 11, 4})}), {keys + ": ", "88 of its 96"}));
  CHECK(says(refusal({part({0, 0, 0}, {2, 7, 4}), part({0, 6, 0}, {2, 6, 4})}),
             {keys + ": ", "twice"}));
  // As many elements as there are, one of them twice and one not at all.
  CHECK(says(refusal({part({0, 0, 0}, {2, 11, 4}), part({0, 10, 0}, {2, 1, 4})}),
             {keys + ": ", "twice"}));
  const auto refusal_of = [&](const Select& target, const Select& source) {
    return made.refusal_with([&](hid_t f) {
      make_virtual(f, keys, [&](hid_t properties, hid_t space) {
        const hdf5::Handle to(H5Scopy(space)), from(H5Scopy(space));
        target(to.get());
        source(from.get());
        hdf5::check(H5Pset_virtual(properties, to.get(), "a.h5", keys.c_str(), from.get()));
      });
    });
  };
  const Select odd = [](hid_t space) {
    const hsize_t start[] = {0, 0, 0}, stride[] = {1, 2, 1}, count[] = {2, 6, 4};
    hdf5::check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, nullptr));
  };
  CHECK(says(refusal_of(odd, odd), {keys + ": ", "not one block"}));
  const Select head = [](hid_t space) { select_block(space, {0, 0, 0}, {1, 12, 4}); };
  const Select rows = [](hid_t space) { select_block(space, {0, 0, 0}, {2, 6, 4}); };
  CHECK(says(refusal_of(head, rows), {keys + ": ", "[2, 6, 4]", "[1, 12, 4]"}));
}

TEST_CASE("a mapping of unlimited size is refused before its files are touched") {
  const MappedDump made;
  const auto keys = kLayer + "/k";
  REQUIRE(mkfifo(made.folder.file("pipe.h5").c_str(), 0600) == 0);  // opened, it would block
  const auto messages = made.refusal_with([&](hid_t f) {
    const hdf5::Handle like(H5Dopen2(f, keys.c_str(), H5P_DEFAULT));
    const hdf5::Handle type(H5Dget_type(like.get()));
    const hsize_t most[] = {2, H5S_UNLIMITED, 4}, start[] = {0, 0, 0}, one[] = {1, 1, 1};
    const hsize_t count[] = {2, H5S_UNLIMITED, 4};
    const hdf5::Handle space(H5Screate_simple(3, kSizes, most));
    hdf5::check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start, one, count, nullptr));
    const hdf5::Handle properties = hdf5::dataset_properties();
    hdf5::check(
        H5Pset_virtual(properties.get(), space.get(), "pipe.h5", keys.c_str(), space.get()));
    remove_link(f, keys);
    const hdf5::Handle made_virtual(H5Dcreate2(f, keys.c_str(), type.get(), space.get(),
                                               H5P_DEFAULT, properties.get(), H5P_DEFAULT));
  });
  CHECK(says(messages, {keys + ": ", "unlimited size"}));
}

TEST_CASE("only tensors may be virtual") {
  const MappedDump made;
  for (const std::string name : {"/sequences/text/token_ids", "/rope/inv_freq"}) {
    CHECK(says(made.refusal_with([&](hid_t f) { map_whole(f, name, "a.h5", name); }),
               {name + ": ", "virtual dataset"}));
  }
}

TEST_CASE("sources are locked while a dump is open, and a change of one is noticed") {
  const MappedDump made;
  map_all_tensors(made.path);
  const std::string source = made.folder.file("b.h5");
  {
    const hdf5::Handle writer = hdf5::open_file(source, hdf5::Access::kReadWrite);
    CHECK(says(made.refusal(), {"b.h5", "is being written by another program"}));
  }
  const Dump dump(made.path, {.allow_virtual = true});
  const UniqueFd writer(::open(source.c_str(), O_RDWR));
  CHECK(::flock(writer.get(), LOCK_EX | LOCK_NB) != 0);
  dump.read_stream("text", 3, 1);
  REQUIRE(::ftruncate(writer.get(), 100) == 0);
  CHECK(says(errors_of([&] { dump.read_stream("text", 3, 1); }), {source}));
}

TEST_CASE("more source files than are opened at once are refused with a remedy") {
  const MappedDump made;
  const auto keys = kLayer + "/k";
  const auto messages = made.refusal_with([&](hid_t f) {
    const hdf5::Handle like(H5Dopen2(f, keys.c_str(), H5P_DEFAULT));
    const hdf5::Handle type(H5Dget_type(like.get()));
    const hsize_t sizes[] = {2, 300, 4};
    const hdf5::Handle space(H5Screate_simple(3, sizes, nullptr));
    const hdf5::Handle from(H5Screate_simple(3, kSizes, nullptr));
    select_block(from.get(), {0, 0, 0}, {2, 1, 4});
    const hdf5::Handle properties = hdf5::dataset_properties();
    for (hsize_t row = 0; row < 300; ++row) {
      const std::string name = fmt::format("part-{}.h5", row);
      std::filesystem::create_hard_link(made.folder.file("a.h5"), made.folder.file(name));
      select_block(space.get(), {0, row, 0}, {2, 1, 4});
      hdf5::check(
          H5Pset_virtual(properties.get(), space.get(), name.c_str(), keys.c_str(), from.get()));
    }
    hdf5::check(H5Sselect_all(space.get()));
    remove_link(f, keys);
    const hdf5::Handle mapped(H5Dcreate2(f, keys.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                         properties.get(), H5P_DEFAULT));
  });
  CHECK(says(messages, {keys + ": ", "256 files", "join"}));
}

}  // namespace virtual_test
