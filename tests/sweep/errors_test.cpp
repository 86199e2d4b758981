// Every way in which a sweep file can be wrong, and the place that its message names. The messages
// themselves are in tests/cli/bad_inputs/messages.txt.
#include <doctest/doctest.h>

#include "sweep_folder.hpp"

namespace kvbench::test {
namespace errors_test {

struct Case {
  std::string text;
  std::string place;  // opening of the message: the file and the JSON pointer
};

std::string with(const std::string& more) { return sweep(entry("exact", ""), more); }

const std::string kDeep(100, '[');

const Case kCases[] = {
    // The file as a whole.
    {"[]", "quick.json: "},
    {"", "quick.json:1:1: "},
    {R"({"dumps": ["a.h5"], "name": "q", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /schema_version: "},
    {R"({"schema_version": 2, "dumps": ["a.h5"], "name": "q", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /schema_version: "},
    {R"({"schema_version": 1, "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /name: "},
    {R"({"schema_version": 1, "name": "a/b", "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /name: "},
    {R"({"schema_version": 1, "name": "..", "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /name: "},
    {R"({"schema_version": 1, "name": "q", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps: "},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5"]})", "quick.json: /algorithms: "},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5"], "algorithms": []})",
     "quick.json: /algorithms: "},
    {with(R"("replays": {})"), "quick.json: /replays: "},
    {with(R"("colour": 1)"), "quick.json: /colour: "},
    {with(R"("a/b~c": 1)"), "quick.json: /a~1b~0c: "},
    {with(R"("seeds": [1], "seeds": [2])"), "quick.json: /seeds: "},
    {with(R"("select": {"layers": [0], "tokens": 8, "layers": [1]})"),
     "quick.json: /select/layers: "},
    {with("\"seeds\": " + kDeep), "quick.json: /seeds" +
                                      [] {
                                        std::string path;
                                        for (int i = 0; i < 63; ++i) path += "/0";
                                        return path;
                                      }() +
                                      ": "},
    // Dumps.
    {R"({"schema_version": 1, "name": "q", "dumps": 7, "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps: "},
    {R"({"schema_version": 1, "name": "q", "dumps": [], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps: "},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5", 7], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps/1: "},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5", "./a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps/1: "},
    {R"({"schema_version": 1, "name": "q", "dumps": ["b.h5", "[ab].h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps/1: "},
    // Selection.
    {with(R"("select": [])"), "quick.json: /select: "},
    {with(R"("select": {"layer": [1]})"), "quick.json: /select/layer: "},
    {with(R"("select": {"layers": "first"})"), "quick.json: /select/layers: "},
    {with(R"("select": {"layers": []})"), "quick.json: /select/layers: "},
    {with(R"("select": {"layers": [0, -1]})"), "quick.json: /select/layers/1: "},
    {with(R"("select": {"layers": [0, 1, 0]})"), "quick.json: /select/layers/2: "},
    {with(R"("select": {"kv_heads": "some"})"), "quick.json: /select/kv_heads: "},
    {with(R"("select": {"sequences": 0})"), "quick.json: /select/sequences: "},
    {with(R"("select": {"sequences": [0]})"), "quick.json: /select/sequences/0: "},
    {with(R"("select": {"sequences": ["0", "0"]})"), "quick.json: /select/sequences/1: "},
    {with(R"("select": {"tokens": 0})"), "quick.json: /select/tokens: "},
    {with(R"("select": {"tokens": []})"), "quick.json: /select/tokens: "},
    {with(R"("select": {"tokens": [128, 0]})"), "quick.json: /select/tokens/1: "},
    {with(R"("select": {"tokens": {"range": [8, 4, 1]}})"), "quick.json: /select/tokens/range: "},
    // Replay, rows, seeds, memory, output.
    {with(R"("replay": {"prompt_tokens": -1})"), "quick.json: /replay/prompt_tokens: "},
    {with(R"("replay": {"prompt_tokens": 1.5})"), "quick.json: /replay/prompt_tokens: "},
    {with(R"("replay": {"prompt_tokens": "dmup"})"), "quick.json: /replay/prompt_tokens: "},
    {with(R"("replay": {"prompt_tokens": null})"), "quick.json: /replay/prompt_tokens: "},
    {with(R"("evaluate": {"rows": "every"})"), "quick.json: /evaluate/rows: "},
    {with(R"("evaluate": {"rows": {"last": 8, "every": 2}})"), "quick.json: /evaluate/rows: "},
    {with(R"("evaluate": {"rows": {"last": 0}})"), "quick.json: /evaluate/rows/last: "},
    {with(R"("evaluate": {"rows": {"evry": 4}})"), "quick.json: /evaluate/rows/evry: "},
    {with(R"("evaluate": {"rows": [5, 5]})"), "quick.json: /evaluate/rows/1: "},
    {with(R"("evaluate": {"rows": {"prompt": 64}})"), "quick.json: /evaluate/rows/prompt: "},
    {with(R"("evaluate": {"rows": {"prompt": {"every": 0}}})"),
     "quick.json: /evaluate/rows/prompt/every: "},
    {with(R"("evaluate": {"rows": {"prompt": {"prompt": "all"}}})"),
     "quick.json: /evaluate/rows/prompt/prompt: "},
    {with(R"("evaluate": {"rows": {"prompt": [3, 3]}})"), "quick.json: /evaluate/rows/prompt/1: "},
    {with(R"("evaluate": {"rows": {"prompt": "all", "last": 2}})"), "quick.json: /evaluate/rows: "},
    {with(R"("evaluate": {"rows": {"prompt": "all"}}, "output": {"caches": true})"),
     "quick.json: /output/caches: "},
    {with(R"("seeds": 3)"), "quick.json: /seeds: "},
    {with(R"("seeds": [])"), "quick.json: /seeds: "},
    {with(R"("seeds": [0, 4294967296])"), "quick.json: /seeds/1: "},
    {with(R"("seeds": [-1])"), "quick.json: /seeds/0: "},
    {with(R"("seeds": [7, 8, 7])"), "quick.json: /seeds/2: "},
    {with(R"("seeds": {"first": 4294967295, "count": 2})"), "quick.json: /seeds: "},
    {with(R"("seeds": {"count": 1000001})"), "quick.json: /seeds/count: "},
    {with(R"("seeds": {"count": 0})"), "quick.json: /seeds/count: "},
    {with(R"("seeds": {"start": 1})"), "quick.json: /seeds/start: "},
    {with(R"("memory": {"element_bytes": 3})"), "quick.json: /memory/element_bytes: "},
    {with(R"("memory": {"element_bytes": "fp16"})"), "quick.json: /memory/element_bytes: "},
    {with(R"("output": {"rows": "yes"})"), "quick.json: /output/rows: "},
    // Entries.
    {sweep("\"exact\""), "quick.json: /algorithms/0: "},
    {sweep(R"({"params": {}})"), "quick.json: /algorithms/0/algorithm: "},
    {sweep(entry("snapvk", "")), "quick.json: /algorithms/0/algorithm: "},
    {sweep(entry("quest", "")), "quick.json: /algorithms/0/algorithm: "},
    {sweep(R"({"algorithm": "exact", "parms": {}})"), "quick.json: /algorithms/0/parms: "},
    {sweep(R"({"algorithm": "exact", "params": []})"), "quick.json: /algorithms/0/params: "},
    {sweep(R"({"algorithm": "exact", "label": "a/b"})"), "quick.json: /algorithms/0/label: "},
    {sweep(R"({"algorithm": "exact", "label": ""})"), "quick.json: /algorithms/0/label: "},
    {sweep(R"({"algorithm": "exact", "where": {"layrs": [1]}})"),
     "quick.json: /algorithms/0/where/layrs: "},
    {sweep(R"({"algorithm": "exact", "where": {"layers": ["0"]}})"),
     "quick.json: /algorithms/0/where/layers/0: "},
    // Parameters.
    {sweep(entry("exact", "") + ", " + entry("window", "\"budget\": 8") + ", " +
           entry("snapkv", "\"budgt\": 512, \"budget\": 512")),
     "quick.json: /algorithms/2/params/budgt: "},
    {sweep(entry("snapkv", "\"budgt\": 512")), "quick.json: /algorithms/0/params/budgt: "},
    {sweep(entry("exact", "\"budget\": 512")), "quick.json: /algorithms/0/params/budget: "},
    {sweep(entry("window", "\"budget\": 512, \"temperature\": 1")),
     "quick.json: /algorithms/0/params/temperature: "},
    {sweep(R"({"algorithm": "window"})"), "quick.json: /algorithms/0/params/budget: "},
    {sweep(entry("window", "\"budget\": [64, 0]")), "quick.json: /algorithms/0/params/budget/1: "},
    {sweep(entry("window", "\"budget\": []")), "quick.json: /algorithms/0/params/budget: "},
    {sweep(entry("window", "\"budget\": [8, 16, 8]")),
     "quick.json: /algorithms/0/params/budget/2: "},
    {sweep(entry("snapkv", "\"budget\": 64, \"pool\": \"avgg\"")),
     "quick.json: /algorithms/0/params/pool: "},
    {sweep(entry("snapkv", "\"budget\": 64, \"kernel\": [5, 6]")),
     "quick.json: /algorithms/0/params/kernel/1: "},
    {sweep(entry("uniform", "\"T\": 1, \"replacement\": 1")),
     "quick.json: /algorithms/0/params/replacement: "},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4, \"s\": 2e15")),
     "quick.json: /algorithms/0/params/s: "},
    {sweep(entry("subgen", "\"delta\": 1, \"epsilon\": 0")),
     "quick.json: /algorithms/0/params/epsilon: "},
    // Exclusive parameters.
    {sweep(entry("subgen", "\"t\": 4, \"s\": 64")), "quick.json: /algorithms/0/params: "},
    {sweep(entry("subgen", "\"delta\": 1, \"delta_quantile\": 0.1, \"t\": 4, \"s\": 64")),
     "quick.json: /algorithms/0/params: "},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4")), "quick.json: /algorithms/0/params: "},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4, \"s\": 64, \"epsilon\": 0.5")),
     "quick.json: /algorithms/0/params: "},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4, \"epsilon\": 0.5")),
     "quick.json: /algorithms/0/params: "},
    {sweep(entry("uniform", "")), "quick.json: /algorithms/0/params: "},
    {sweep(entry("uniform", "\"T\": [1, 2], \"budget\": 64")),
     "quick.json: /algorithms/0/params: "},
    // Cells that two entries describe.
    {sweep(entry("window", "\"budget\": [64, 128]") + ", " +
           R"({"algorithm": "window", "params": {"budget": 128.0}, "label": "other"})"),
     "quick.json: /algorithms/1: "},
    {sweep(entry("window", "\"budget\": 32") + ", " + entry("window", "\"budget\": 64") + ", " +
           R"({"algorithm": "window", "params": {"budget": [16, 64, 32]}, "label": "other"})"),
     "quick.json: /algorithms/2: "},
    {sweep(entry("snapkv", "\"budget\": 64, \"kernel\": [3, 5]") + ", " +
           entry("snapkv", "\"budget\": [32, 64], \"kernel\": 7") + ", " +
           entry("snapkv", "\"budget\": [16, 64], \"kernel\": [5, 9]")),
     "quick.json: /algorithms/2: "},
    {sweep(R"({"algorithm": "clustergen", "params": {"delta": 1, "t": 4, "s": 64}}, )" +
           entry("subgen", "\"delta\": 1.0, \"t\": 4, \"s\": 64, \"sampling\": \"v2\"")),
     "quick.json: /algorithms/1: "},
    {sweep(R"({"algorithm": "exact", "where": {"layers": [0, 1]}}, )"
           R"({"algorithm": "exact", "where": {"layers": [1, 2], "kv_heads": [0]}})"),
     "quick.json: /algorithms/1: "},
    // Size.
    {sweep(entry("subgen",
                 R"("delta": 1, "t": {"range": [1, 10000, 1]}, "s": {"range": [1, 10000, 1]})")),
     "quick.json: /algorithms/0/params: "},
    {sweep(entry("subgen", R"("delta": 1, "t": {"range": [1, 11, 1]}, "s": 1)"),
           R"("seeds": {"count": 1000000})"),
     "quick.json: /algorithms: "},
};

TEST_CASE("every fault is reported once, at its place in the file") {
  const SweepFolder folder;
  for (const Case& wrong : kCases) {
    CAPTURE(wrong.text);
    const auto messages = folder.errors(wrong.text);
    REQUIRE(messages.size() == 1);
    CHECK_MESSAGE(messages[0].find(wrong.place) == 0, messages[0]);
  }
}

TEST_CASE("a dump that is not there names the folder it was looked for in") {
  const SweepFolder folder;
  const std::string text =
      R"({"schema_version": 1, "name": "q", "dumps": ["no.h5", "*.hdf5", "."], "algorithms": [{"algorithm": "exact"}]})";
  const auto messages = folder.errors(text);
  REQUIRE(messages.size() == 3);
  const std::string looked_in = folder.file("").substr(0, folder.file("").size() - 1);
  const char* const names[] = {"no.h5", "*.hdf5", "./*.h5"};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(messages[i].find("quick.json: /dumps/" + std::to_string(i) + ": ") == 0);
    CHECK(messages[i].find(names[i]) != std::string::npos);
    CHECK((messages[i].find(looked_in) != std::string::npos) == (i < 2));
  }
}

TEST_CASE("syntax errors name line and column") {
  const SweepFolder folder;
  const auto place = [&](const std::string& text) {
    const auto messages = folder.errors(text);
    REQUIRE(messages.size() == 1);
    return messages[0].substr(0, messages[0].find(": "));
  };
  CHECK(place("{\n  \"name\": quick\n}") == "quick.json:2:11");
  CHECK(place("{\"a\": 1,}") == "quick.json:1:8");
  CHECK(place("{\"a\": 1}\n\n  x") == "quick.json:3:3");
  CHECK(place("{\"a\": 1e999}") == "quick.json:1:11");
  CHECK(place("{ // comment\n /* never closed") == "quick.json:2:17");
}

TEST_CASE("all faults of a file are reported together") {
  const SweepFolder folder;
  const auto messages = folder.errors(R"({
    "schema_version": 3, "name": "", "dumps": ["a.h5", "a.h5"], "selct": {}, "seeds": [1, 1],
    "evaluate": {"rows": {"last": -1}}, "memory": {"element_bytes": 16},
    "memory": {},
    "algorithms": [
      {"algorithm": "widnow", "where": {"layers": []}, "label": 3},
      {"algorithm": "snapkv", "params": {"budget": "all", "kernel": 0.5, "pol": "max"}},
      {"algorithm": "uniform", "params": {"T": -1, "budget": 1}, "extra": 1}
    ]})");
  const std::vector<std::string> places = {
      "/memory",
      "/selct",
      "/schema_version",
      "/name",
      "/dumps/1",
      "/evaluate/rows/last",
      "/seeds/1",
      "/memory/element_bytes",
      "/algorithms/0/algorithm",
      "/algorithms/0/label",
      "/algorithms/0/where/layers",
      "/algorithms/1/params/pol",
      "/algorithms/1/params/budget",
      "/algorithms/1/params/kernel",
      "/algorithms/2/extra",
      "/algorithms/2/params",
      "/algorithms/2/params/T",
  };
  REQUIRE(messages.size() == places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    CHECK(messages[i].find("quick.json: " + places[i] + ": ") == 0);
  }
}

TEST_CASE("a message is one line whatever the keys hold") {
  const SweepFolder folder;
  const auto messages = folder.errors(with(R"("a\nb": 1)"));
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].find("quick.json: /a\\u000ab: ") == 0);
}

TEST_CASE("thousands of faults are counted, not printed") {
  const SweepFolder folder;
  std::string rows;
  for (int i = 0; i < 5000; ++i) rows += (i == 0 ? "" : ", ") + std::string("-") + "1";
  const auto messages = folder.errors(with("\"evaluate\": {\"rows\": [" + rows + "]}"));
  REQUIRE(messages.size() == 1001);
  CHECK(messages.back().find("quick.json: and 4000 more") == 0);
}

TEST_CASE("a sweep file that cannot be read is named") {
  const SweepFolder folder;
  const auto read = [&](const std::string& name) {
    return folder.messages([&] { read_sweep(folder.file(name), {}, made_up_algorithms()); });
  };
  const auto missing = read("none.json");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].find("none.json: ") == 0);
  CHECK(missing[0].find("No such file or directory") != std::string::npos);
  const auto folder_given =
      folder.messages([&] { read_sweep(folder.file(""), {}, made_up_algorithms()); });
  REQUIRE(folder_given.size() == 1);
  CHECK(folder_given[0].find(": is a folder") != std::string::npos);
}

TEST_CASE("--set that cannot be applied is a fault") {
  const SweepFolder folder;
  const std::string text = with("\"seeds\": [1]");
  const auto error = [&](const std::string& set) {
    const auto messages = folder.errors(text, {set});
    REQUIRE_FALSE(messages.empty());
    return messages[0];
  };
  CHECK(error("/seeds").find("quick.json: --set /seeds: ") == 0);
  CHECK(error("seeds..x=1").find("quick.json: --set seeds..x=1: ") == 0);
  CHECK(error("/seeds/2=1").find("quick.json: --set /seeds/2: ") == 0);
  CHECK(error("/name/x=1").find("quick.json: --set /name/x: ") == 0);
  CHECK(
      error(R"(/select={"tokens": 1, "tokens": 2})").find("quick.json: --set /select /tokens: ") ==
      0);
  CHECK(error("/name=\xff").find("quick.json: --set /name: ") == 0);
  CHECK(error("/selct/layers=[0]").find("quick.json: /selct: ") == 0);
}

}  // namespace errors_test
}  // namespace kvbench::test
