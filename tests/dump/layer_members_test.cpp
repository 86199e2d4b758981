// Members that a layer may have beyond q, k, v and their scale: read, and part of the fingerprint.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "synth/synth.hpp"

using namespace kvbench;

namespace layer_members_test {

const std::string kLayer = "/sequences/text/layers/3";

void write_numbers(hid_t file, const std::string& path, const std::vector<double>& numbers) {
  hdf5::write_dataset(file, path, {numbers.size()}, numbers.data());
}

// The small dump, format 2, with `change` made to it.
std::string changed(const TemporaryFolder& folder, const std::function<void(hid_t)>& change) {
  const std::string path = folder.file("changed.h5");
  write_small_dump(path);
  edit(path, [&](hid_t f) {
    set_attribute(f, "/", "format_version", std::int64_t{2});
    change(f);
  });
  return path;
}

void write_evidence(hid_t file, const std::vector<std::int32_t>& ends, std::int64_t row) {
  hdf5::write_dataset(file, "/sequences/text/evidence", {ends.size() / 2, 2}, ends.data());
  set_attribute(file, "/sequences/text/evidence", "rows", row);
}

void replace_v_by_key_columns(hid_t file, std::int64_t columns) {
  remove_link(file, kLayer + "/v");
  remove_link(file, kLayer + "/out");
  set_attribute(file, kLayer, "value_in_key", columns);
}

SynthOptions small_synth() {
  SynthOptions options;
  options.kind = "gaussian";
  options.tokens = 40;
  options.d = 6;
  options.dv = 4;
  options.kv_heads = 2;
  options.heads_per_kv = 2;
  options.dtype = "float64";
  return options;
}

TEST_CASE("a plain file has none of the members, and format 2 without any is as good") {
  const TemporaryFolder folder;
  const Dump dump(changed(folder, [](hid_t) {}));
  CHECK(dump.info().format_version == 2);
  const LayerInfo& layer = *dump.info().find_sequence("text")->find_layer(3);
  CHECK(layer.causal);
  CHECK(layer.chunk == 0);
  CHECK(!layer.value_in_key);
  CHECK(layer.sinks.empty());
  CHECK(layer.alibi_slopes.empty());
  CHECK(layer.hidden == 0);
  CHECK(layer.residual_rows == 0);
  const StreamShape shape = stream_shape(dump.info(), layer);
  CHECK(shape.causal);
  CHECK(!shape.sinks);
  CHECK(!shape.alibi);
  CHECK(!shape.value_in_key);
}

TEST_CASE("sinks and slopes reach the query heads of a KV head's group") {
  const TemporaryFolder folder;
  const Dump dump(changed(folder, [](hid_t f) {
    write_numbers(f, kLayer + "/sinks", {-1.5, 0.0, 2.25, 7.0});
    write_numbers(f, kLayer + "/alibi_slopes", {0.5, 0.25, 0.125, 0.0});
    set_attribute(f, kLayer, "sliding_window", std::int64_t{0});
    set_attribute(f, kLayer, "chunk", std::int64_t{5});
  }));
  const auto first = dump.read_stream("text", 3, 0);
  const auto second = dump.read_stream("text", 3, 1);
  CHECK(first->stream.sinks == std::vector<double>{-1.5, 0.0});
  CHECK(second->stream.sinks == std::vector<double>{2.25, 7.0});
  CHECK(first->stream.alibi_slopes == std::vector<double>{0.5, 0.25});
  CHECK(second->stream.alibi_slopes == std::vector<double>{0.125, 0.0});
  CHECK(second->stream.shape.sinks);
  CHECK(second->stream.shape.alibi);
  CHECK(second->stream.shape.chunk == 5);
  CHECK(second->stream.shape.first_visible(9) == 5);
  CHECK(second->stream.shape.first_visible(10) == 10);
  CHECK(dump.read_stream("text", 1, 1)->stream.sinks.empty());
}

void write_key_bias(hid_t file, const std::vector<double>& numbers) {
  hdf5::write_dataset(file, kLayer + "/key_bias", {2, numbers.size() / 2}, numbers.data());
}

TEST_CASE("a bias of keys reaches its KV head, in either format") {
  const TemporaryFolder folder;
  const std::string path = changed(folder, [](hid_t f) {
    write_key_bias(f, {1, -2, 3, 4, 0, 0.5, 0, 8});
    set_attribute(f, "/", "format_version", std::int64_t{1});
  });
  const Dump dump(path);
  CHECK(dump.read_stream("text", 3, 0)->stream.key_bias == std::vector<double>{1, -2, 3, 4});
  CHECK(dump.read_stream("text", 3, 1, 6)->stream.key_bias == std::vector<double>{0, 0.5, 0, 8});
  CHECK(dump.read_stream("text", 3, 1)->stream.shape.key_bias);
  CHECK(!dump.read_stream("text", 1, 1)->stream.shape.key_bias);
  CHECK(dump.read_stream("text", 1, 1)->stream.key_bias.empty());
  const auto says_of = [&](const std::vector<double>& bias, const std::vector<std::string>& words) {
    CHECK(says(errors_of([&] { Dump(changed(folder, [&](hid_t f) { write_key_bias(f, bias); })); }),
               words));
  };
  says_of({1, 2, 3, 4, 5, 6}, {kLayer + "/key_bias", "floating-point [2, 4]"});
  says_of({1, 2, 3, 4, 5, 6, std::nan(""), 8},
          {kLayer + "/key_bias", "KV head 1, column 2", "finite"});
}

TEST_CASE("values may be the first columns of the keys") {
  const TemporaryFolder folder;
  const Dump dump(changed(folder, [](hid_t f) { replace_v_by_key_columns(f, 3); }));
  const auto data = dump.read_stream("text", 3, 1);
  const Stream& stream = data->stream;
  CHECK(stream.shape.value_in_key);
  CHECK(stream.shape.dv == 3);
  CHECK(stream.values.rows == 12);
  for (Index j = 0; j < 12; ++j) {
    for (Index c = 0; c < 3; ++c) CHECK(stream.values(j, c) == stream.keys(j, c));
  }
}

TEST_CASE("every member is part of the fingerprint") {
  const TemporaryFolder folder;
  const std::vector<std::function<void(hid_t)>> changes = {
      [](hid_t) {},
      [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, 3, 4}); },
      [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, 3, 4 + 0x1p-50}); },
      [](hid_t f) { write_numbers(f, kLayer + "/alibi_slopes", {1, 2, 3, 4}); },
      [](hid_t f) { write_key_bias(f, {1, 2, 3, 4, 5, 6, 7, 8}); },
      [](hid_t f) { write_key_bias(f, {1, 2, 3, 4, 5, 6, 7, 9}); },
      [](hid_t f) { set_attribute(f, kLayer, "chunk", std::int64_t{0}); },
      [](hid_t f) { set_attribute(f, kLayer, "causal", std::int64_t{1}); },
      [](hid_t f) { replace_v_by_key_columns(f, 2); },
      [](hid_t f) { replace_v_by_key_columns(f, 3); },
      [](hid_t f) { replace_dataset(f, kLayer + "/wo", {4, 6, 2}, H5T_IEEE_F32LE); },
      [](hid_t f) {
        replace_dataset(f, kLayer + "/wo", {4, 6, 2}, H5T_IEEE_F32LE);
        set_element(f, kLayer + "/wo", {3, 5, 1}, 0x1p-100);
      },
      [](hid_t f) { write_numbers(f, kLayer + "/residual_norm", {1, 2}); },
      [](hid_t f) { write_numbers(f, kLayer + "/residual_norm", {1, 3}); },
      [](hid_t f) { write_evidence(f, {0, 3}, 11); },
      [](hid_t f) { write_evidence(f, {0, 4}, 11); },
      [](hid_t f) { write_evidence(f, {0, 3}, 10); }};
  std::set<std::string> fingerprints;
  for (const auto& change : changes) {
    fingerprints.insert(Dump(changed(folder, change)).fingerprint());
  }
  CHECK(fingerprints.size() == changes.size());
}

TEST_CASE("synthetic dumps with members say format 2, and their outputs are those of the members") {
  const TemporaryFolder folder;
  const std::vector<std::function<void(SynthOptions&)>> members = {
      [](SynthOptions& o) { o.sinks = 0.5; }, [](SynthOptions& o) { o.alibi = true; },
      [](SynthOptions& o) { o.causal = false; }, [](SynthOptions& o) { o.chunk = 7; },
      [](SynthOptions& o) { o.value_in_key = true; }};
  std::set<std::string> fingerprints;
  for (const auto& set : members) {
    SynthOptions options = small_synth();
    set(options);
    synthesize(options, folder.file("s.h5"));
    const Dump dump(folder.file("s.h5"));
    CHECK(dump.info().format_version == 2);
    fingerprints.insert(dump.fingerprint());
    // Row n - 1 of query head 3, by hand.
    const auto data = dump.read_stream("0", 0, 1);
    const Stream& stream = data->stream;
    std::vector<double> answer(4, 0.0);
    double sum = options.sinks ? std::exp(stream.sinks.at(1)) : 0.0;
    for (Index j = options.chunk > 0 ? 35 : 0; j < 40; ++j) {
      double x = 0.0;
      for (Index c = 0; c < 6; ++c) x += stream.query(1, 39)[c] * stream.keys(j, c);
      x /= std::sqrt(6.0);
      if (options.alibi) x -= static_cast<double>(39 - j) / 256.0;
      sum += std::exp(x);
      for (Index c = 0; c < 4; ++c) {
        const double value = options.value_in_key ? stream.keys(j, c) : stream.values(j, c);
        answer[c] += std::exp(x) * value;
      }
    }
    const UnfilledDoubles out = dump.read_out("0", 0, 3);
    for (std::size_t c = 0; c < 4; ++c) {
      CHECK(out[39 * 4 + c] == doctest::Approx(answer[c] / sum).epsilon(1e-12));
    }
  }
  CHECK(fingerprints.size() == members.size());
}

}  // namespace layer_members_test
