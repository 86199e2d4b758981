// Members that a layer may have beyond q, k, v and their scale: read, refused, and part of the
// fingerprint.
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
std::string changed(const TemporaryFolder& folder, const std::function<void(hid_t)>& change,
                    int version = 2) {
  const std::string path = folder.file("changed.h5");
  write_small_dump(path);
  edit(path, [&](hid_t f) {
    set_attribute(f, "/", "format_version", std::int64_t{version});
    change(f);
  });
  return path;
}

std::vector<std::string> errors_with(const TemporaryFolder& folder,
                                     const std::function<void(hid_t)>& change, int version = 2) {
  return errors_of([&] { Dump dump(changed(folder, change, version)); });
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

TEST_CASE("a file of format 1 with a member of format 2 is refused with the remedy") {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const std::function<void(hid_t)>& change) {
    CAPTURE(std::string(name));
    CHECK(errors_with(folder, change, 2).empty());
    CHECK(says(errors_with(folder, change, 1), {kLayer, name, "write format_version = 2"}));
  };
  refused("sinks", [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, 3, 4}); });
  refused("alibi_slopes",
          [](hid_t f) { write_numbers(f, kLayer + "/alibi_slopes", {1, 2, 3, 4}); });
  refused("chunk", [](hid_t f) {
    set_attribute(f, kLayer, "sliding_window", std::int64_t{0});
    set_attribute(f, kLayer, "chunk", std::int64_t{4});
  });
  refused("causal", [](hid_t f) { set_attribute(f, kLayer, "causal", std::int64_t{1}); });
  refused("value_in_key", [](hid_t f) { replace_v_by_key_columns(f, 2); });
  // Quantities that are measured besides may be in either.
  CHECK(errors_with(
            folder,
            [](hid_t f) {
              replace_dataset(f, kLayer + "/wo", {4, 6, 5}, H5T_IEEE_F32LE);
              write_numbers(f, kLayer + "/residual_norm", {1, 2, 3});
              write_evidence(f, {0, 3, 5, 5}, 11);
            },
            1)
            .empty());
}

TEST_CASE("wrong members are refused, each with its place") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& words,
                           const std::function<void(hid_t)>& change) {
    CAPTURE(words.front());
    CHECK(says(errors_with(folder, change), words));
  };
  refused({kLayer + "/sinks", "floating-point [4]"},
          [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, 3}); });
  refused({kLayer + "/sinks", "query head 2", "finite"},
          [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, NAN, 4}); });
  refused({kLayer + "/sinks", "must be floating-point [4]"},
          [](hid_t f) { replace_dataset(f, kLayer + "/sinks", {4}, H5T_STD_I32LE); });
  refused({kLayer + "/alibi_slopes", "query head 0", "at least 0"},
          [](hid_t f) { write_numbers(f, kLayer + "/alibi_slopes", {-1, 2, 3, 4}); });
  refused({kLayer, "chunk of 4", "sliding_window"}, [](hid_t f) {
    set_attribute(f, kLayer, "sliding_window", std::int64_t{6});
    set_attribute(f, kLayer, "chunk", std::int64_t{4});
  });
  refused({kLayer, "causal is 2", "at most 1"},
          [](hid_t f) { set_attribute(f, kLayer, "causal", std::int64_t{2}); });
  refused({kLayer, "causal = 0", "sliding_window"}, [](hid_t f) {
    set_attribute(f, kLayer, "causal", std::int64_t{0});
    set_attribute(f, kLayer, "sliding_window", std::int64_t{6});
  });
  refused({kLayer, "causal = 0", "alibi_slopes"}, [](hid_t f) {
    set_attribute(f, kLayer, "causal", std::int64_t{0});
    set_attribute(f, kLayer, "sliding_window", std::int64_t{0});
    write_numbers(f, kLayer + "/alibi_slopes", {1, 2, 3, 4});
  });
  refused({"layers/3", "causal = 0", "the same"}, [](hid_t f) {
    set_attribute(f, kLayer, "causal", std::int64_t{0});
    set_attribute(f, kLayer, "sliding_window", std::int64_t{0});
  });
  refused({kLayer + "/v", "value_in_key", "remove one"},
          [](hid_t f) { set_attribute(f, kLayer, "value_in_key", std::int64_t{2}); });
  refused({kLayer, "value_in_key is 5", "4 columns of k"},
          [](hid_t f) { replace_v_by_key_columns(f, 5); });
  refused({kLayer, "value_in_key is 0", "at least 1"},
          [](hid_t f) { replace_v_by_key_columns(f, 0); });
  refused({kLayer, "wo [4, 5, 9] must be [4, 6, hidden]"},
          [](hid_t f) { replace_dataset(f, kLayer + "/wo", {4, 5, 9}, H5T_IEEE_F32LE); });
  refused({kLayer + "/residual_norm", "13 norms", "k [2, 12, 4]"}, [](hid_t f) {
    write_numbers(f, kLayer + "/residual_norm", std::vector<double>(13, 1.0));
  });
  refused({"/sequences/text/evidence", "span 1", "[7, 12]"},
          [](hid_t f) { write_evidence(f, {0, 3, 7, 12}, 11); });
  refused({"/sequences/text/evidence", "span 0", "[4, 3]"},
          [](hid_t f) { write_evidence(f, {4, 3}, 11); });
  refused({"/sequences/text/evidence", "row 12", "0 to 11"},
          [](hid_t f) { write_evidence(f, {0, 3}, 12); });
  refused({"/sequences/text/evidence", "attribute rows is missing"}, [](hid_t f) {
    write_evidence(f, {0, 3}, 11);
    remove_attribute(f, "/sequences/text/evidence", "rows");
  });
  refused({"/sequences/text/evidence", "int32 [e, 2]"},
          [](hid_t f) { replace_dataset(f, "/sequences/text/evidence", {4}, H5T_STD_I32LE); });
}

TEST_CASE("wo, norms of the residual stream and evidence are read as they were written") {
  const TemporaryFolder folder;
  SynthOptions options = small_synth();
  options.hidden = 7;
  options.evidence = {3, 9};
  synthesize(options, folder.file("s.h5"));
  const Dump dump(folder.file("s.h5"));
  CHECK(dump.info().format_version == 1);
  const SequenceInfo& sequence = dump.info().sequences.front();
  REQUIRE(sequence.evidence);
  REQUIRE(sequence.evidence->spans.size() == 1);
  CHECK(sequence.evidence->spans.front().first == 3);
  CHECK(sequence.evidence->spans.front().second == 9);
  CHECK(sequence.evidence->rows == std::vector<Index>{39});
  CHECK(sequence.layers.front().hidden == 7);
  std::set<double> seen;
  for (int head = 0; head < 4; ++head) {
    const UnfilledDoubles wo = dump.read_wo("0", 0, head);
    CHECK(wo.size() == 4 * 7);
    seen.insert(wo.begin(), wo.end());
  }
  CHECK(seen.size() == 4 * 4 * 7);
  CHECK(dump.read_residual_norms("0", 0).size() == 40);
  CHECK(says(errors_of([&] { dump.read_wo("0", 0, 4); }), {"no query head 4", "0 to 3"}));

  const auto damaged = [&](const char* tensor, const std::vector<hsize_t>& place, double number) {
    synthesize(options, folder.file("d.h5"));
    edit(folder.file("d.h5"), [&](hid_t f) {
      set_element(f, std::string("/sequences/0/layers/0/") + tensor, place, number);
    });
    return errors_of([&] {
      const Dump read(folder.file("d.h5"));
      read.read_residual_norms("0", 0);
      read.read_wo("0", 0, 1);
    });
  };
  CHECK(says(damaged("residual_norm", {5}, -1.0), {"residual_norm", "element 5"}));
  CHECK(says(damaged("wo", {1, 2, 3}, INFINITY), {"wo", "head 1", "finite"}));

  write_small_dump(folder.file("plain.h5"));
  const Dump plain(folder.file("plain.h5"));
  CHECK(says(errors_of([&] { plain.read_wo("text", 3, 0); }), {"has no wo"}));
  CHECK(plain.read_residual_norms("text", 3).empty());
}

TEST_CASE("every member is part of the fingerprint") {
  const TemporaryFolder folder;
  const std::vector<std::function<void(hid_t)>> changes = {
      [](hid_t) {},
      [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, 3, 4}); },
      [](hid_t f) { write_numbers(f, kLayer + "/sinks", {1, 2, 3, 4 + 0x1p-50}); },
      [](hid_t f) { write_numbers(f, kLayer + "/alibi_slopes", {1, 2, 3, 4}); },
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

TEST_CASE("synth refuses members that exclude each other") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& words, auto set) {
    SynthOptions options = small_synth();
    set(options);
    CHECK(says(errors_of([&] { synthesize(options, folder.file("s.h5")); }), words));
  };
  refused({"--chunk", "--sliding-window"}, [](SynthOptions& o) { o.chunk = o.window = 4; });
  refused({"--every-token", "--alibi"}, [](SynthOptions& o) {
    o.causal = false;
    o.alibi = true;
  });
  refused({"--dv: ", "--value-in-key", "got 9"}, [](SynthOptions& o) {
    o.dv = 9;
    o.value_in_key = true;
  });
  refused({"--evidence", "span"}, [](SynthOptions& o) { o.evidence = {5, 3}; });
}

}  // namespace layer_members_test
