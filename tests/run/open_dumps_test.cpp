#include "run/open_dumps.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "cellfiles/cache_file.hpp"
#include "run/small_run.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/sweep_folder.hpp"
#include "synth/synth.hpp"

namespace kvbench::test {
namespace open_dumps_test {

const std::string kTwoDumps = R"({"schema_version": 1, "name": "quick", "dumps": ["a.h5", "b.h5"],
  "algorithms": [{"algorithm": "exact"}]})";

TEST_CASE("dumps are described as they are stored, in the order of the sweep") {
  const SweepFolder folder;
  SynthOptions options = small_synth();
  options.prompt_tokens = 48;
  synthesize(options, folder.file("b.h5"));
  options.tokens = 96;
  options.window = 32;
  options.seed = 1;
  synthesize(options, folder.file("a.h5"));
  SweepConfig config = folder.parse(kTwoDumps);
  const OpenDumps opened = open_dumps(config);
  REQUIRE(opened.dumps.size() == 2);
  REQUIRE(opened.planned.size() == 2);
  CHECK(opened.planned[0].path == folder.file("a.h5"));
  CHECK(opened.planned[1].path == folder.file("b.h5"));
  CHECK(opened.planned[0].fingerprint == opened.dumps[0].fingerprint());
  CHECK(opened.planned[0].fingerprint != opened.planned[1].fingerprint);
  const PlannedSequence& sequence = opened.planned[0].sequences.at(0);
  CHECK(sequence.name == "0");
  CHECK(sequence.prompt_tokens == 48);
  REQUIRE(sequence.layers.size() == 2);
  CHECK(sequence.layers[1].index == 1);
  CHECK(sequence.layers[1].kv_heads == 2);
  CHECK(sequence.layers[1].shape.tokens == 96);
  CHECK(sequence.layers[1].shape.d == 8);
  CHECK(sequence.layers[1].shape.heads_per_kv == 2);
  CHECK(sequence.layers[1].shape.window == 32);
}

TEST_CASE("rows of heads that no dump has are noted") {
  const SweepFolder folder;
  synthesize(small_synth(), folder.file("a.h5"));
  const auto notes = [&](const std::vector<StreamId>& heads, const std::string& of_dump) {
    CacheWriter writer(folder.file("kept.h5"),
                       {.method = "m", .producer = "", .params = "", .seed = {}, .dump = of_dump});
    KeptRows kept;
    kept.prompt = 32;
    kept.rows = {KeptRow{.token = 3, .begin = 32}};
    StreamShape shape;
    shape.tokens = 64;
    for (const StreamId& id : heads) writer.add(id, shape, kept);
    writer.finish();
    SweepConfig config = parse_sweep(
        R"({"schema_version": 1, "name": "quick", "dumps": ["a.h5"],
            "algorithms": [{"algorithm": "given", "params": {"file": "kept.h5"}}]})",
        folder.file("quick.json"), {}, all_algorithms());
    return open_dumps(config).notes;
  };
  CHECK(notes({{"0", 0, 0}, {"0", 1, 1}}, "").empty());
  const auto found = notes({{"0", 0, 0}, {"0", 0, 2}, {"0", 7, 0}, {"other", 0, 0}}, "");
  REQUIRE(found.size() == 1);
  CHECK(found[0].find("kept.h5: rows of 3 of 4 KV heads") != std::string::npos);
  CHECK(found[0].find("sequence 0, layer 0, KV head 2") != std::string::npos);
  // No cell of another dump is run, for that reason.
  CHECK(notes({{"0", 0, 2}}, "0123456789abcdef0123456789abcdef").empty());
}

TEST_CASE("the faults of all dumps are thrown together, after those of the sweep") {
  const SweepFolder folder;  // its a.h5 and b.h5 are not dumps
  SweepConfig config = folder.parse(kTwoDumps);
  config.errors = {"of the sweep"};
  const auto messages = folder.messages([&] { open_dumps(config); });
  REQUIRE(messages.size() == 3);
  CHECK(messages[0] == "of the sweep");
  CHECK(messages[1].find("a.h5") == 0);
  CHECK(messages[2].find("b.h5") == 0);
}

}  // namespace open_dumps_test
}  // namespace kvbench::test
