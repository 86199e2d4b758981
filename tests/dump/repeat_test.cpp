// The pass that repeats the prompt: read, part of the fingerprint, and made by synth.
#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "synth/synth.hpp"

using namespace kvbench;

namespace repeat_test {

const std::string kLayer = "/sequences/text/layers/3";
const std::string kPlace = "/sequences/text/repeat";

void write_parts(hid_t file, const std::vector<std::int32_t>& numbers) {
  if (hdf5::has_link(file, kPlace)) remove_link(file, kPlace);
  hdf5::write_dataset(file, kPlace, {numbers.size() / 3, 3}, numbers.data());
}

// The small dump with a pass of 4 and 3 rows over the tokens [1, 4) and [4, 5).
std::string with_pass(
    const TemporaryFolder& folder, const std::function<void(hid_t)>& change = [](hid_t) {}) {
  const std::string path = folder.file("repeat.h5");
  write_small_dump(path);
  edit(path, [&](hid_t f) {
    write_parts(f, {1, 4, 4, 4, 5, 3});
    replace_dataset(f, kLayer + "/q_repeat", {4, 7, 4}, H5T_IEEE_F32LE);
    replace_dataset(f, kLayer + "/k_repeat", {2, 7, 4}, H5T_IEEE_F32LE);
    set_element(f, kLayer + "/q_repeat", {3, 6, 2}, 1.5);
    set_element(f, kLayer + "/k_repeat", {1, 5, 3}, -2.5);
    change(f);
  });
  return path;
}

TEST_CASE("a pass is read with the stream of each KV head of a layer that has it") {
  const TemporaryFolder folder;
  const Dump dump(with_pass(folder));
  CHECK(dump.info().format_version == 1);
  const auto& pass = dump.info().sequences.front().repeat;
  REQUIRE(pass);
  CHECK(pass->parts == std::vector<RepeatPass::Part>{{1, 4, 4}, {4, 5, 3}});
  CHECK(pass->first() == 1);
  CHECK(pass->prompt() == 5);
  CHECK(pass->rows() == 7);
  const auto data = dump.read_stream("text", 3, 1);
  const Stream& stream = data->stream;
  REQUIRE(stream.shape.repeat == pass);
  REQUIRE(stream.repeat_queries.size() == 2);
  CHECK(stream.repeat_queries[1].rows == 7);
  CHECK(stream.repeat_queries[1](6, 2) == 1.5);
  CHECK(stream.repeat_queries[0](6, 2) == 0.0);
  CHECK(stream.repeat_keys(5, 3) == -2.5);
  CHECK(dump.read_stream("text", 3, 0)->stream.repeat_keys(5, 3) == 0.0);
  // The pass is also read with fewer tokens than were repeated: an algorithm that cannot use it
  // reports that.
  CHECK(dump.read_stream("text", 3, 1, 3)->stream.repeat_keys.rows == 7);
  CHECK(dump.read_stream("text", 1, 1)->stream.shape.repeat == nullptr);
}

TEST_CASE("every number of a pass is part of the fingerprint") {
  const TemporaryFolder folder;
  std::set<std::string> fingerprints;
  const std::vector<std::function<void(hid_t)>> changes = {
      [](hid_t) {},
      [](hid_t f) { write_parts(f, {0, 4, 4, 4, 5, 3}); },
      [](hid_t f) { write_parts(f, {1, 3, 4, 3, 5, 3}); },
      [](hid_t f) { write_parts(f, {1, 4, 3, 4, 5, 4}); },
      [](hid_t f) { set_attribute(f, kPlace, "request", std::string("Again.")); },
      [](hid_t f) { set_element(f, kLayer + "/q_repeat", {0, 0, 0}, 0x1p-100); },
      [](hid_t f) { set_element(f, kLayer + "/k_repeat", {0, 0, 0}, 0x1p-100); },
      [](hid_t f) {
        remove_link(f, kLayer + "/q_repeat");
        remove_link(f, kLayer + "/k_repeat");
      },
      [](hid_t f) {
        remove_link(f, kLayer + "/q_repeat");
        remove_link(f, kLayer + "/k_repeat");
        remove_link(f, kPlace);
      }};
  for (const auto& change : changes) {
    fingerprints.insert(Dump(with_pass(folder, change)).fingerprint());
  }
  CHECK(fingerprints.size() == changes.size());
  // Without one, it is that of a dump as it always was.
  write_small_dump(folder.file("plain.h5"));
  CHECK(fingerprints.count(Dump(folder.file("plain.h5")).fingerprint()) == 1);
}

TEST_CASE("synth makes a pass whose rows stand for the tokens they repeat") {
  const TemporaryFolder folder;
  SynthOptions options;
  options.kind = "gaussian";
  options.tokens = 60;
  options.d = 16;
  options.kv_heads = 2;
  options.prompt_tokens = 50;
  options.repeat = 20;
  options.dtype = "float64";
  const std::string path = folder.file("s.h5");
  synthesize(options, path);
  const Dump dump(path);
  CHECK(dump.info().format_version == 1);
  const auto& pass = dump.info().sequences.front().repeat;
  REQUIRE(pass);
  CHECK(pass->parts == std::vector<RepeatPass::Part>{{0, 20, 28}, {20, 40, 28}, {40, 50, 18}});
  const auto data = dump.read_stream("0", 0, 1);
  const Stream& stream = data->stream;
  CHECK(stream.repeat_keys.rows == 74);
  // Row 28 + 8 + 3 repeats token 23: its query asks for that key more than for any other.
  Index best = 0;
  double most = -1e30;
  for (Index j = 0; j < 50; ++j) {
    double x = 0.0;
    for (Index c = 0; c < 16; ++c) x += stream.repeat_queries[1](39, c) * stream.keys(j, c);
    if (x > most) std::tie(most, best) = std::pair(x, j);
  }
  CHECK(best == 23);
  options.repeat = 0;
  synthesize(options, folder.file("plain.h5"));
  CHECK(Dump(folder.file("plain.h5")).info().sequences.front().repeat == nullptr);
  options.repeat = 20;
  options.prompt_tokens.reset();
  CHECK(says(errors_of([&] { synthesize(options, path); }), {"--repeat: needs --prompt-tokens"}));
}

}  // namespace repeat_test
