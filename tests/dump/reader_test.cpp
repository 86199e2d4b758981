#include <doctest/doctest.h>

#include <set>
#include <utility>
#include <vector>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"

using namespace kvbench;

namespace reader_test {

// Elements of `stream` that differ from what was planted in KV head `head`.
int differences(const StreamData& data, int head) {
  const Stream& s = data.stream;
  const LayerLayout layout = small_layout();
  const Index stored_from = layout.tokens - layout.query_rows;
  int wrong = 0;
  for (Index j = 0; j < s.shape.tokens; ++j) {
    for (Index c = 0; c < s.shape.d; ++c) wrong += s.keys(j, c) != planted("k", head, j, c);
    for (Index c = 0; c < s.shape.dv; ++c) wrong += s.values(j, c) != planted("v", head, j, c);
  }
  for (int g = 0; g < s.shape.heads_per_kv; ++g) {
    for (Index i = s.shape.first_query; i < s.shape.tokens; ++i) {
      for (Index c = 0; c < s.shape.d; ++c) {
        wrong +=
            s.query(g, i)[c] != planted("q", head * s.shape.heads_per_kv + g, i - stored_from, c);
      }
    }
  }
  return wrong;
}

std::vector<OtherStorage> every_storage() {
  std::vector<OtherStorage> all;
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16,
                                 ElementType::kFloat32, ElementType::kFloat64}) {
    for (const bool big_endian : {false, true}) {
      OtherStorage storage;
      storage.storage.type = type;
      storage.big_endian = big_endian;
      all.push_back(storage);  // contiguous
      storage.storage.chunk_rows = 5;
      all.push_back(storage);  // 5 does not divide 12 nor 7
      storage.storage.gzip = 4;
      all.push_back(storage);
      storage.chunk_heads = 3;  // chunks span heads
      all.push_back(storage);
      storage.bfloat16_as_float = true;
      if (type == ElementType::kBfloat16) all.push_back(storage);
    }
  }
  return all;
}

TEST_CASE("every element type, byte order, chunking and compression reads back exactly") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  for (const OtherStorage& storage : every_storage()) {
    CAPTURE(element_name(storage.storage.type));
    CAPTURE(storage.big_endian);
    CAPTURE(storage.storage.chunk_rows);
    CAPTURE(storage.chunk_heads);
    write_small_dump(path, storage);
    const Dump dump(path);
    const LayerInfo* layer = dump.info().sequences.at(0).find_layer(3);
    REQUIRE(layer != nullptr);
    CHECK(layer->dtype == element_name(storage.storage.type));
    for (const int head : {0, 1, 0}) {
      const auto data = dump.read_stream("text", 3, head);
      CHECK(data->stream.queries.size() == 2);
      CHECK(differences(*data, head) == 0);
    }
    const auto out = dump.read_out("text", 3, 2);
    REQUIRE(out.size() == 18);
    for (Index i = 0; i < 3; ++i) {
      for (Index c = 0; c < 6; ++c) {
        CHECK(out[i * 6 + c] == planted("out", 2, i, c));
      }
    }
  }
}

TEST_CASE("a stream is read into the memory of the one that was given back") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  const Dump dump(path);
  const auto places = [](const StreamData& data) {
    return std::set<const double*>{data.keys.data(), data.values.data(), data.queries.at(0).data(),
                                   data.queries.at(1).data()};
  };
  auto data = dump.read_stream("text", 3, 0);
  const std::set<const double*> given = places(*data);
  const Index sizes[] = {std::ssize(data->keys), std::ssize(data->values),
                         std::ssize(data->queries.front())};
  dump.reuse(std::move(data));
  // Memory that had gone back to the heap would be theirs.
  std::vector<UnfilledDoubles> others;
  for (int i = 0; i < 8; ++i) {
    for (const Index size : sizes) others.emplace_back(size);
  }
  data = dump.read_stream("text", 3, 1);
  CHECK(places(*data) == given);
  CHECK(differences(*data, 1) == 0);
  dump.reuse(std::move(data));
  data = dump.read_stream("text", 3, 0, 6);  // a shorter one
  CHECK(data->stream.shape.tokens == 6);
  CHECK(differences(*data, 0) == 0);
  dump.reuse(std::move(data));
  data = dump.read_stream("text", 3, 1);
  CHECK(differences(*data, 1) == 0);
}

TEST_CASE("norms of W_O v are read per query head of the KV head, where a layer has them") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t f) {
    const std::string dataset = "/sequences/text/layers/3/wo_v_l1";
    replace_dataset(f, dataset, {4, 12, 1}, H5T_IEEE_F64LE);
    for (hsize_t g = 0; g < 4; ++g) {
      for (hsize_t j = 0; j < 12; ++j) {
        set_element(f, dataset, {g, j, 0}, static_cast<double>(100 * g + j));
      }
    }
  });
  const Dump dump(path);
  const auto data = dump.read_stream("text", 3, 1, 9);
  CHECK(data->stream.shape.wo_v_l1);
  REQUIRE(data->stream.wo_v_l1.size() == 2);
  for (std::size_t g = 0; g < 2; ++g) {
    CHECK(data->wo_v_l1[g].size() == 9);
    for (Index j = 0; j < 9; ++j) {
      CHECK(data->stream.wo_v_l1[g][j] ==
            static_cast<double>(100 * (2 + g)) + static_cast<double>(j));
    }
  }
  const auto without = dump.read_stream("text", 1, 1);
  CHECK(!without->stream.shape.wo_v_l1);
  CHECK(without->stream.wo_v_l1.empty());
}

TEST_CASE("bfloat16 as 2-byte opaque elements with the attribute is read as uint16 is") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  StorageOptions storage;
  storage.type = ElementType::kBfloat16;
  write_small_dump(path, storage);
  edit(path, [](hid_t file) {
    const hdf5::Handle old(H5Dopen2(file, "/sequences/text/layers/3/k", H5P_DEFAULT));
    std::vector<std::uint16_t> bits(2 * 12 * 4);
    hdf5::check(H5Dread(old.get(), H5T_NATIVE_UINT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, bits.data()));
    const hdf5::Handle opaque(H5Tcreate(H5T_OPAQUE, 2));
    replace_dataset(file, "/sequences/text/layers/3/k", {2, 12, 4}, opaque.get());
    const hdf5::Handle fresh(H5Dopen2(file, "/sequences/text/layers/3/k", H5P_DEFAULT));
    hdf5::check(H5Dwrite(fresh.get(), opaque.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bits.data()));
    set_attribute(file, "/sequences/text/layers/3/k", "dtype", std::string("bfloat16"));
  });
  CHECK(differences(*Dump(path).read_stream("text", 3, 1), 1) == 0);
}

TEST_CASE("the description of a dump is what was written") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, [](hid_t file) { set_attribute(file, "/", "dataset", std::string("squares")); });
  const Dump dump(path);
  const DumpInfo& info = dump.info();
  CHECK(info.path == path);
  CHECK(info.model == "small");
  CHECK(info.producer == "test");
  CHECK(info.n_layers == 4);
  CHECK(info.attributes.size() == 6);
  CHECK(info.attributes.front() == std::pair<std::string, std::string>{"dataset", "squares"});
  REQUIRE(info.find_sequence("text") != nullptr);
  CHECK(info.find_sequence("other") == nullptr);
  const SequenceInfo& sequence = *info.find_sequence("text");
  CHECK(sequence.prompt_tokens == 5);
  CHECK(sequence.description == "squares");
  REQUIRE(sequence.layers.size() == 2);
  CHECK(sequence.layers[0].index == 1);
  CHECK(sequence.layers[1].index == 3);
  CHECK(sequence.find_layer(2) == nullptr);
  const LayerInfo& layer = sequence.layers[1];
  CHECK(layer.query_heads == 4);
  CHECK(layer.kv_heads == 2);
  CHECK(layer.tokens == 12);
  CHECK(layer.query_rows == 7);
  CHECK(layer.d == 4);
  CHECK(layer.dv == 6);
  CHECK(layer.dtype == "float16");
  CHECK(layer.scale == 0.5);
  CHECK(layer.window == 8);
  CHECK(layer.softcap == 30.0);
  CHECK(layer.out_rows == 3);
  CHECK(layer.rope != nullptr);
}

TEST_CASE("a stream cut to its first tokens keeps the queries that are left") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  const Dump dump(path);
  const LayerInfo& layer = *dump.info().sequences[0].find_layer(1);
  for (const Index tokens : {12, 9, 6, 5, 4, 1}) {
    const auto data = dump.read_stream("text", 1, 1, tokens);
    const StreamShape& shape = data->stream.shape;
    CHECK(shape.tokens == tokens);
    CHECK(shape.first_query == std::min<Index>(5, tokens));
    CHECK(shape.heads_per_kv == 2);
    CHECK(shape.window == 8);
    CHECK(shape.scale == 0.5);
    CHECK(shape.softcap == 30.0);
    CHECK(shape.n_layers == 4);
    CHECK(data->stream.id.sequence == "text");
    CHECK(data->stream.id.layer == 1);
    CHECK(data->stream.id.kv_head == 1);
    CHECK(data->stream.keys.rows == tokens);
    for (const ConstMatrix& q : data->stream.queries) CHECK(q.rows == tokens - shape.first_query);
    CHECK(differences(*data, 1) == 0);
    const StreamShape planned = stream_shape(dump.info(), layer, tokens);
    CHECK(planned.first_query == shape.first_query);
    CHECK(planned.tokens == shape.tokens);
  }
  CHECK(dump.read_stream("text", 1, 0)->stream.shape.tokens == 12);
}

TEST_CASE("what a dump does not hold is refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  const Dump dump(path);
  CHECK(says(errors_of([&] { dump.read_stream("other", 1, 0); }), {path, "other"}));
  CHECK(says(errors_of([&] { dump.read_stream("text", 2, 0); }), {path, "no layer 2"}));
  CHECK(says(errors_of([&] { dump.read_stream("text", 1, 2); }), {path, "KV head 2", "0 to 1"}));
  CHECK(says(errors_of([&] { dump.read_stream("text", 1, 0, 13); }), {path, "13", "12"}));
  CHECK(says(errors_of([&] { dump.read_out("text", 1, 4); }), {path, "query head 4"}));
}

}  // namespace reader_test
