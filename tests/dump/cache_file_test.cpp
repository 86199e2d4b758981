// Cache files: what is written is read back, and what no stream could have is refused by place.
#include "cellfiles/cache_file.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace cache_file_test {

const std::string kHead = "/sequences/text/layers/3/heads/1";
const StreamId kId{"text", 3, 1};
const StreamShape kShape = [] {
  StreamShape shape;
  shape.tokens = 12;
  shape.d = 4;
  shape.dv = 6;
  shape.heads_per_kv = 2;
  return shape;
}();

KeptRows some_rows() {
  KeptRows kept;
  kept.prompt = 5;
  kept.appends = false;
  for (const std::int32_t token : {0, 3, 4, 6}) {
    KeptRow row;
    row.token = token;
    row.begin = token < 5 ? 5 : token;
    kept.rows.push_back(row);
  }
  kept.rows[1].end = 9;
  kept.rows[1].w_num = -0.25;
  kept.rows[1].w_den = 3.0;
  kept.rows[2].head = 1;
  kept.rows[2].copies = 4;
  kept.rows[2].keeps_value = false;
  kept.rows[3].counts_as_token = false;
  for (KeptRow& row : kept.rows) row.weight_numbers = 2;
  kept.rows[0].weight_numbers = 0;
  for (int i = 0; i < 16; ++i) kept.keys.push_back(0.1 * i);
  for (int i = 0; i < 24; ++i) kept.values.push_back(-0.1 * i);
  kept.further_numbers = {1, 2, 3, 4, 5, 6, 7};
  return kept;
}

void write(const std::string& path, const KeptRows& kept) {
  CacheWriter writer(path,
                     {.method = "mine", .producer = "p", .params = "{}", .seed = 4, .dump = ""});
  writer.add(kId, kShape, kept);
  writer.finish();
}

bool same(const KeptRows& a, const KeptRows& b) {
  return a.prompt == b.prompt && a.rows == b.rows && a.keys == b.keys && a.values == b.values &&
         a.appends == b.appends && a.reads_future == b.reads_future && a.bytes == b.bytes &&
         a.further_numbers == b.further_numbers;
}

// In place of a dataset of the head.
void put(hid_t file, const std::string& name, const std::vector<double>& values,
         hid_t type = H5T_IEEE_F64LE) {
  const std::string path = kHead + "/" + name;
  if (hdf5::has_link(file, path)) remove_link(file, path);
  const hsize_t size = values.size();
  const hdf5::Handle space(H5Screate_simple(1, &size, nullptr));
  const hdf5::Handle dataset(
      H5Dcreate2(file, path.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  hdf5::check(
      H5Dwrite(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
}

// As h5py stores numpy's bool.
hdf5::Handle truth_values() {
  hdf5::Handle type(H5Tenum_create(H5T_NATIVE_INT8));
  const signed char no = 0;
  const signed char yes = 1;
  hdf5::check(H5Tenum_insert(type.get(), "FALSE", &no));
  hdf5::check(H5Tenum_insert(type.get(), "TRUE", &yes));
  return type;
}

void put_truth_values(hid_t file, const std::string& name) {
  const std::string path = kHead + "/" + name;
  if (hdf5::has_link(file, path)) remove_link(file, path);
  const hsize_t size = 4;
  const hdf5::Handle space(H5Screate_simple(1, &size, nullptr));
  const hdf5::Handle type = truth_values();
  const hdf5::Handle dataset(H5Dcreate2(file, path.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                        H5P_DEFAULT, H5P_DEFAULT));
  const std::array<signed char, 4> no{};
  hdf5::check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, no.data()));
}

void set_truth_value(hid_t file, const std::string& name) {
  const hdf5::Handle object(H5Oopen(file, kHead.c_str(), H5P_DEFAULT));
  const hdf5::Handle space(H5Screate(H5S_SCALAR));
  const hdf5::Handle type = truth_values();
  const hdf5::Handle attribute(
      H5Acreate2(object.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  const signed char yes = 1;
  hdf5::check(H5Awrite(attribute.get(), type.get(), &yes));
}

void add_group(hid_t file, const std::string& path) {
  const hdf5::Handle group(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

TEST_CASE("rows come back as they were written") {
  const TemporaryFolder folder;
  const std::string path = folder.file("c.h5");
  KeptRows plain;
  plain.prompt = 5;
  KeptRow row;
  row.token = 2;
  row.begin = 5;
  plain.rows = {row, row};
  KeptRows declared = plain;
  declared.bytes = 77;
  KeptRows future = plain;
  future.appends = false;
  future.reads_future = true;
  future.rows[0].token = 11;
  for (const KeptRows& kept : {plain, declared, future, some_rows()}) {
    write(path, kept);
    const auto cache = open_cache(path);
    CHECK(cache->method == "mine");
    REQUIRE(cache->heads.size() == 1);
    const KeptHead& head = cache->heads.front();
    CHECK(head.prompt == 5);
    CHECK(head.tokens == 12);
    CHECK(head.rows == std::ssize(kept.rows));
    CHECK(cache->find(kId) == &head);
    CHECK(same(cache->read(kId), kept));
    CHECK_FALSE(misfit(head, kShape, 5));
  }
}

TEST_CASE("the fingerprint is that of the content") {
  const TemporaryFolder folder;
  const auto fingerprint = [&](const KeptRows& kept) {
    const std::string path = folder.file("c.h5");
    write(path, kept);
    return open_cache(path)->fingerprint;
  };
  const std::string first = fingerprint(some_rows());
  CHECK(fingerprint(some_rows()) == first);
  KeptRows other = some_rows();
  other.rows[0].w_num = 1.5;
  CHECK(fingerprint(other) != first);
  other = some_rows();
  other.keys[3] += 1e-9;
  CHECK(fingerprint(other) != first);
  other = some_rows();
  other.rows[1].end = 10;
  CHECK(fingerprint(other) != first);
  other = some_rows();
  other.further_numbers[6] = 8;
  CHECK(fingerprint(other) != first);
}

TEST_CASE("smaller types and other widths are read") {
  const TemporaryFolder folder;
  const std::string path = folder.file("c.h5");
  KeptRows kept = some_rows();
  kept.rows[1].w_num = -0.25;
  write(path, kept);
  const std::string first = open_cache(path)->fingerprint;
  edit(path, [](hid_t file) {
    put(file, "token", {0, 3, 4, 6}, H5T_STD_I64BE);
    put(file, "weight_numerator", {1, -0.25, 1, 1}, H5T_IEEE_F32LE);
    put(file, "head", {-1, -1, 1, -1}, H5T_STD_I8LE);
  });
  CHECK(open_cache(path)->fingerprint == first);
}

TEST_CASE("what no stream could have is refused with its place") {
  struct Bad {
    std::function<void(hid_t)> plant;
    std::vector<std::string> words;
  };
  const auto set = [](const std::string& name, const auto& value) {
    return [=](hid_t file) { set_attribute(file, kHead, name, value); };
  };
  const auto data = [](const std::string& name, const std::vector<double>& values,
                       hid_t type = H5T_IEEE_F64LE) {
    return [=](hid_t file) { put(file, name, values, type); };
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const hid_t i32 = H5T_STD_I32LE;
  const std::vector<Bad> all = {
      {[](hid_t f) { remove_attribute(f, kHead, "prompt_tokens"); },
       {kHead, "prompt_tokens", "missing"}},
      {set("prompt_tokens", std::int64_t{-1}), {kHead, "is -1"}},
      {set("decode", std::string("never")), {kHead, "'never'", "'append' or 'given'"}},
      {set("decoed", std::string("given")),
       {kHead, "unknown attribute decoed", "did you mean decode"}},
      {set("key_bytes", std::int64_t{-4}), {kHead, "key_bytes", "at least 0"}},
      {set("decode", std::string("append")), {kHead, "row 3", "decode token 6", "append"}},
      {[](hid_t f) { set_attribute(f, "/", "format", std::string("kvbench-dump")); },
       {"format is 'kvbench-dump'", "kvbench-cache"}},
      {[](hid_t f) { set_attribute(f, "/", "method", std::string("a/b")); }, {"method", "name"}},
      {[](hid_t f) { remove_attribute(f, "/", "method"); }, {"attribute method is missing"}},
      {[](hid_t f) { remove_link(f, kHead + "/token"); }, {kHead + "/token", "missing"}},
      {[](hid_t f) { remove_link(f, kHead); }, {"has no rows of any head"}},
      {[](hid_t f) { remove_link(f, kHead + "/weight_denominator"); }, {"weight_numerator alone"}},
      {data("weight", {1, 1, 1, 1}), {"weight and weight_numerator", "one or the other"}},
      {data("weigth", {1, 1, 1, 1}), {"unknown dataset weigth", "did you mean weight"}},
      {data("weight_denominator", {1, -2, 1, 1}),
       {"weight_denominator", "row 1", "-2", "at least 0"}},
      {data("weight_denominator", {1, 2, nan, 1}), {"weight_denominator", "row 2", "NaN"}},
      {data("weight_numerator", {1, 2}), {"2 rows", "4"}},
      {data("token", {0, 3.5, 4, 6}), {kHead + "/token", "row 1 is 3.5", "integer"}},
      {data("token", {0, -3, 4, 6}, i32), {kHead + "/token", "row 1 is -3"}},
      {data("token", {0, 8, 4, 6}, i32), {"row 1", "token 8", "row 5", "reads_future"}},
      {data("token", {0, 3e9, 4, 6}, H5T_STD_I64LE), {kHead + "/token", "row 1 is 3000000000"}},
      {data("begin", {4, 5, 5, 6}, i32), {"row 0", "begins at 4", "prompt of 5"}},
      {data("end", {12, 4, 12, 12}, i32), {"row 1", "ends at 4", "begins at 5"}},
      {data("head", {0, 0, 4000, 0}, i32), {kHead + "/head", "row 2 is 4000"}},
      {data("copies", {1, 0, 1, 1}, i32), {kHead + "/copies", "row 1 is 0"}},
      {data("bookkeeping", {1, 2}, i32), {kHead + "/bookkeeping", "2 numbers", "7 decode rows"}},
      {[](hid_t f) {
         remove_link(f, kHead + "/key");
         put(f, "token", {-1, 3, 4, 6}, H5T_STD_I32LE);
       },
       {"row 0", "token -1", "key and value"}},
      {[](hid_t f) { replace_dataset(f, kHead + "/key", {4, 4, 1}, H5T_IEEE_F32LE); },
       {"3 dimensions"}},
      {[](hid_t f) { replace_dataset(f, kHead + "/value", {4, 6}, H5T_STD_I16LE); },
       {"16-bit integers"}},
      {[](hid_t f) { set_truth_value(f, "extra_bytes"); },
       {kHead, "extra_bytes is True", "store the number itself"}},
      {[](hid_t f) { put_truth_values(f, "token"); },
       {kHead + "/token", "is a mask", "np.flatnonzero(mask)"}},
      {[](hid_t f) { put_truth_values(f, "copies"); },
       {kHead + "/copies", "must be numbers, got truth values"}},
      {[](hid_t f) { put_truth_values(f, "weight"); }, {kHead + "/weight", "truth values"}},
      {[](hid_t f) { set_attribute(f, "/", "parms", std::string("{}")); },
       {": /: unknown attribute parms", "did you mean params"}},
      {[](hid_t f) { add_group(f, "/sequence"); },
       {": /: unknown member sequence", "did you mean sequences"}},
      {[](hid_t f) { set_attribute(f, "/sequences", "prompt_tokens", std::int64_t{5}); },
       {": /sequences: unknown attribute prompt_tokens"}},
      {[](hid_t f) { set_attribute(f, "/sequences/text", "prompt_tokens", std::int64_t{5}); },
       {": /sequences/text: unknown attribute prompt_tokens"}},
      {[](hid_t f) { add_group(f, "/sequences/text/layer"); },
       {": /sequences/text: unknown member layer", "did you mean layers"}},
      {[](hid_t f) {
         set_attribute(f, "/sequences/text/layers/3", "decode", std::string("given"));
       },
       {": /sequences/text/layers/3: unknown attribute decode"}},
      {[](hid_t f) { add_group(f, "/sequences/text/layers/3/head"); },
       {": /sequences/text/layers/3: unknown member head", "did you mean heads"}},
      {[](hid_t f) {
         set_attribute(f, "/sequences/text/layers/3/heads", "tokens", std::int64_t{12});
       },
       {": /sequences/text/layers/3/heads: unknown attribute tokens"}},
  };
  for (const Bad& bad : all) {
    const TemporaryFolder folder;
    const std::string path = folder.file("c.h5");
    write(path, some_rows());
    edit(path, bad.plant);
    const auto messages = errors_of([&] { open_cache(path); });
    CAPTURE(bad.words);
    CAPTURE(messages);
    CHECK(says(messages, bad.words));
    for (const std::string& message : messages) CHECK(message.starts_with(path + ": "));
  }
}

TEST_CASE("one fault of a row is one error") {
  const TemporaryFolder folder;
  const std::string path = folder.file("c.h5");
  const auto errors_with = [&](const std::vector<double>& tokens, bool appends) {
    write(path, some_rows());
    edit(path, [&](hid_t file) {
      for (const char* name : {"key", "value"}) remove_link(file, kHead + "/" + name);
      put(file, "token", tokens, H5T_STD_I32LE);
      if (appends) set_attribute(file, kHead, "decode", std::string("append"));
    });
    return errors_of([&] { open_cache(path); });
  };
  const auto below = errors_with({0, -3, 4, 4}, false);  // not also one without a token
  CHECK(below.size() == 1);
  CHECK(says(below, {"row 1 is -3"}));
  const auto appended = errors_with({0, 8, 4, 4}, true);  // not also one that is to begin later
  CHECK(appended.size() == 1);
  CHECK(says(appended, {"row 1", "decode token 8", "append"}));
}

TEST_CASE("a store keeps what was written through a kill, and gives it back from its files") {
  const TemporaryFolder folder;
  const std::string caches = folder.file("caches");
  const CacheFile file{"a.h5",
                       "0123abcd",
                       {.method = "a", .producer = "", .params = "", .seed = {}, .dump = ""},
                       {{"id1", kId, kShape}, {"id2", {"text", 3, 0}, kShape}}};
  {
    KeptStore store(caches, KeptStore::Use::kWrite);
    CHECK_FALSE(store.has("id1"));
    store.write("id1", some_rows());
  }  // as after a kill: nothing was finished
  {
    KeptStore store(caches, KeptStore::Use::kWrite);
    REQUIRE(store.has("id1"));
    CHECK(same(store.read("id1"), some_rows()));
    store.finish({file}, false);
  }
  CHECK(open_cache(caches + "/a.h5")->heads.size() == 1);
  {
    KeptStore store(caches, KeptStore::Use::kWrite);
    KeptRows second = some_rows();
    second.rows[0].w_num = 9.0;
    store.write("id2", second);
    store.finish({file}, true);
  }
  CHECK_FALSE(std::filesystem::exists(caches + "/journal"));
  const auto cache = open_cache(caches + "/a.h5");
  CHECK(cache->heads.size() == 2);
  CHECK(same(cache->read(kId), some_rows()));
  KeptStore store(caches, KeptStore::Use::kWrite);
  CHECK(store.has("id2"));
  CHECK(store.read("id2").rows[0].w_num == 9.0);
  store.remove();
  CHECK(std::filesystem::is_empty(caches));
}

TEST_CASE("what a killed finish left goes with the next one, also under another label") {
  const TemporaryFolder folder;
  const std::string caches = folder.file("caches");
  const auto named = [](const std::string& label) {
    return CacheFile{label + ".h5",
                     "0123abcd",
                     {.method = label, .producer = "", .params = "", .seed = {}, .dump = ""},
                     {{"id1", kId, kShape}}};
  };
  {
    KeptStore store(caches, KeptStore::Use::kWrite);
    store.write("id1", some_rows());
  }
  std::ofstream(caches + "/old.h5.tmp") << "half of a file";
  std::ofstream(caches + "/notes.tmp") << "mine";
  KeptStore store(caches, KeptStore::Use::kWrite);
  store.finish({named("new")}, true);
  CHECK(std::filesystem::exists(caches + "/new.h5"));
  CHECK_FALSE(std::filesystem::exists(caches + "/old.h5.tmp"));
  CHECK(std::filesystem::exists(caches + "/notes.tmp"));
  std::ofstream(caches + "/other.h5.tmp") << "half of a file";
  store.remove();
  CHECK_FALSE(std::filesystem::exists(caches + "/other.h5.tmp"));
  CHECK(std::filesystem::exists(caches + "/notes.tmp"));
}

TEST_CASE("a file that cannot be read is named, and does not count as there") {
  const TemporaryFolder folder;
  const std::string caches = folder.file("caches");
  std::filesystem::create_directory(caches);
  write(caches + "/good.h5", some_rows());
  std::ofstream(caches + "/bad.h5") << "not HDF5";
  const KeptStore store(caches, KeptStore::Use::kRead);
  REQUIRE(store.unreadable().size() == 1);
  CHECK(store.unreadable()[0].starts_with(caches + "/bad.h5: "));
}

TEST_CASE("a file that cannot be read is not written over, whatever its name") {
  const TemporaryFolder folder;
  const std::string caches = folder.file("caches");
  const CacheFile file{"a.h5",
                       "0123abcd",
                       {.method = "a", .producer = "", .params = "", .seed = {}, .dump = ""},
                       {{"id1", kId, kShape}}};
  const auto finish = [&] {
    KeptStore store(caches, KeptStore::Use::kWrite);
    store.write("id1", some_rows());
    store.finish({file}, true);
  };
  const auto text_of = [&](const std::string& name) {
    std::ifstream in(caches + "/" + name);
    std::string text;
    std::getline(in, text);
    return text;
  };
  std::filesystem::create_directory(caches);
  std::ofstream(caches + "/a.h5") << "mine";
  finish();
  CHECK(text_of("a.h5") == "mine");
  CHECK(open_cache(caches + "/a-0123abcd.h5")->heads.size() == 1);
  std::ofstream(caches + "/a-0123abcd.h5") << "mine too";
  finish();
  CHECK(text_of("a.h5") == "mine");
  CHECK(text_of("a-0123abcd.h5") == "mine too");
  CHECK(open_cache(caches + "/a-0123abcd-2.h5")->heads.size() == 1);
}

TEST_CASE("a damaged end of the journal is cut off") {
  const TemporaryFolder folder;
  const std::string caches = folder.file("caches");
  {
    KeptStore store(caches, KeptStore::Use::kWrite);
    store.write("id1", some_rows());
    store.write("id2", some_rows());
  }
  std::filesystem::resize_file(caches + "/journal",
                               std::filesystem::file_size(caches + "/journal") - 3);
  const KeptStore store(caches, KeptStore::Use::kWrite);
  CHECK(store.has("id1"));
  CHECK_FALSE(store.has("id2"));
  CHECK(same(store.read("id1"), some_rows()));
}

}  // namespace cache_file_test
