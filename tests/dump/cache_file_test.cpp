// Cache files: what is written is read back. Wrong ones are in tests/cli/bad_inputs/caches.json.
#include "cellfiles/cache_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/repeated_tokens.hpp"
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

TEST_CASE("tokens that a query head reads twice are found as by comparing all pairs") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int found = 0;
  for (int trial = 0; trial < 300; ++trial) {
    KeptRows kept;
    kept.prompt = 5;
    for (int r = 0; r < 6; ++r) {
      KeptRow row;
      row.token = static_cast<std::int32_t>(below(7) - 1);
      row.head = static_cast<std::int16_t>(below(3) - 1);
      row.begin = 5 + below(6);
      row.end = below(3) == 0 ? KeptRow::kToTheEnd : row.begin + below(4);
      kept.rows.push_back(row);
    }
    const auto together = [](const KeptRow& a, const KeptRow& b) {
      return a.token >= 0 && a.token == b.token &&
             (a.head == b.head || a.head == -1 || b.head == -1) &&
             std::max(a.begin, b.begin) < std::min(a.end, b.end);
    };
    bool any = false;
    for (std::size_t a = 0; a < 6; ++a) {
      for (std::size_t b = 0; b < a; ++b) any = any || together(kept.rows[a], kept.rows[b]);
    }
    const auto pair = repeated_token(kept);
    REQUIRE(pair.has_value() == any);
    if (pair) CHECK(together(kept.rows[pair->row], kept.rows[pair->earlier]));
    found += any ? 1 : 0;
    kept.keys.resize(24);
    kept.values.resize(24);
    CHECK_FALSE(repeated_token(kept));  // rows of their own
  }
  CHECK(found > 50);
  CHECK(found < 250);
}

TEST_CASE("a token that weights name twice is a sample's") {
  const TemporaryFolder folder;
  const std::string path = folder.file("c.h5");
  KeptRows twice;
  twice.prompt = 5;
  twice.rows.resize(2);
  for (KeptRow& row : twice.rows) {
    row.token = 2;
    row.begin = 5;
  }
  write(path, twice);
  CHECK(same(open_cache(path)->read(kId), twice));
  edit(path, [](hid_t file) { remove_link(file, kHead + "/weight"); });
  CHECK_THROWS_WITH_AS(open_cache(path)->read(kId), doctest::Contains("both of token 2"),
                       InputError);
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

}  // namespace cache_file_test
