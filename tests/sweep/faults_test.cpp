// Every way in which a sweep file can be wrong, with the words that a user reads.
#include <doctest/doctest.h>

#include "sweep_folder.hpp"

namespace kvbench::test {
namespace {

struct Case {
  std::string text;
  std::string message;
};

std::string with(const std::string& more) { return sweep(entry("exact", ""), more); }

const std::string kDeep(100, '[');

const Case kCases[] = {
    // The file as a whole.
    {"[]", "quick.json: must be an object in braces, is array"},
    {"",
     "quick.json:1:1: not JSON here: syntax error while parsing value - unexpected end of "
     "input; expected '[', '{', or a literal"},
    {R"({"dumps": ["a.h5"], "name": "q", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /schema_version: this key is missing; add \"schema_version\": 1"},
    {R"({"schema_version": 2, "dumps": ["a.h5"], "name": "q", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /schema_version: must be 1, the version this program reads, is 2"},
    {R"({"schema_version": 1, "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /name: this key is missing; name the sweep; its results go to results/<name>"},
    {R"({"schema_version": 1, "name": "a/b", "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /name: must be a folder's name of at most 200 letters, digits, \".\", \"_\" and "
     "\"-\" that "
     "begins with a letter, digit or \"_\", is \"a/b\""},
    {R"({"schema_version": 1, "name": "..", "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /name: must be a folder's name of at most 200 letters, digits, \".\", \"_\" and "
     "\"-\" that "
     "begins with a letter, digit or \"_\", is \"..\""},
    {R"({"schema_version": 1, "name": "q", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps: this key is missing; list the dumps to replay"},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5"]})",
     "quick.json: /algorithms: this key is missing; list what to replay, for example "
     "[{\"algorithm\": \"exact\"}]"},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5"], "algorithms": []})",
     "quick.json: /algorithms: must be a list with at least one entry, is []"},
    {with(R"("replays": {})"),
     "quick.json: /replays: unknown key of a sweep file; did you mean replay?"},
    {with(R"("colour": 1)"),
     "quick.json: /colour: unknown key of a sweep file; it has schema_version, name, dumps, "
     "select, replay, evaluate, seeds, memory, output, algorithms"},
    {with(R"("a/b~c": 1)"),
     "quick.json: /a~1b~0c: unknown key of a sweep file; it has schema_version, name, dumps, "
     "select, replay, evaluate, seeds, memory, output, algorithms"},
    {with(R"("seeds": [1], "seeds": [2])"),
     "quick.json: /seeds: this key is given twice in one object; keep one of them"},
    {with(R"("select": {"layers": [0], "tokens": 8, "layers": [1]})"),
     "quick.json: /select/layers: this key is given twice in one object; keep one of them"},
    {with("\"seeds\": " + kDeep),
     "quick.json: /seeds" +
         [] {
           std::string path;
           for (int i = 0; i < 63; ++i) path += "/0";
           return path;
         }() +
         ": nested more than 64 deep; a sweep file is flatter than that"},
    // Dumps.
    {R"({"schema_version": 1, "name": "q", "dumps": "a.h5", "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps: must be a list of paths with at least one dump, is \"a.h5\""},
    {R"({"schema_version": 1, "name": "q", "dumps": [], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps: must be a list of paths with at least one dump, is []"},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5", 7], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps/1: must be the path of a dump, is 7"},
    {R"({"schema_version": 1, "name": "q", "dumps": ["a.h5", "./a.h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps/1: ./a.h5 is already named by /dumps/0; name it once"},
    {R"({"schema_version": 1, "name": "q", "dumps": ["b.h5", "[ab].h5"], "algorithms": [{"algorithm": "exact"}]})",
     "quick.json: /dumps/1: b.h5 is already named by /dumps/0; name it once"},
    // Selection.
    {with(R"("select": [])"),
     "quick.json: /select: must be an object with sequences, layers, kv_heads, tokens, is []"},
    {with(R"("select": {"layer": [1]})"),
     "quick.json: /select/layer: unknown key of select; did you mean layers?"},
    {with(R"("select": {"layers": 1})"),
     "quick.json: /select/layers: must be \"all\" or a list of integers, is 1"},
    {with(R"("select": {"layers": []})"),
     "quick.json: /select/layers: is an empty axis; list at least one value, or leave it out"},
    {with(R"("select": {"layers": [0, -1]})"),
     "quick.json: /select/layers/1: must be an integer from 0 to 1000000, is -1"},
    {with(R"("select": {"layers": [0, 1, 0]})"),
     "quick.json: /select/layers/2: 0 is given twice on this axis, first at /select/layers/0; keep "
     "one of them"},
    {with(R"("select": {"kv_heads": "some"})"),
     "quick.json: /select/kv_heads: must be \"all\" or a list of integers, is \"some\""},
    {with(R"("select": {"sequences": "0"})"),
     "quick.json: /select/sequences: must be \"all\" or a list of names, is \"0\""},
    {with(R"("select": {"sequences": [0]})"),
     "quick.json: /select/sequences/0: must be a name in quotes, is 0"},
    {with(R"("select": {"sequences": ["0", "0"]})"),
     "quick.json: /select/sequences/1: \"0\" is given twice; keep one of them"},
    {with(R"("select": {"tokens": 0})"),
     "quick.json: /select/tokens: must be an integer >= 1, is 0"},
    {with(R"("select": {"tokens": [128]})"),
     "quick.json: /select/tokens: must be an integer, is [128]"},
    // Replay, rows, seeds, memory, output.
    {with(R"("replay": {"prompt_tokens": -1})"),
     "quick.json: /replay/prompt_tokens: must be an integer >= 0 (tokens) or a fraction between 0 "
     "and 1, or one of dump, default, is -1"},
    {with(R"("replay": {"prompt_tokens": 1.5})"),
     "quick.json: /replay/prompt_tokens: must be an integer >= 0 (tokens) or a fraction between 0 "
     "and 1, or one of dump, default, is 1.5"},
    {with(R"("replay": {"prompt_tokens": "dmup"})"),
     "quick.json: /replay/prompt_tokens: must be an integer >= 0 (tokens) or a fraction between 0 "
     "and 1, or one of dump, default, is \"dmup\"; did you mean dump?"},
    {with(R"("replay": {"prompt_tokens": null})"),
     "quick.json: /replay/prompt_tokens: must be a number or a word, is null"},
    {with(R"("evaluate": {"rows": "every"})"),
     "quick.json: /evaluate/rows: must be \"all\", {\"last\": m}, {\"every\": m} or a list of "
     "rows, is \"every\""},
    {with(R"("evaluate": {"rows": {"last": 8, "every": 2}})"),
     "quick.json: /evaluate/rows: must have exactly one of last and every, is "
     "{\"every\":2,\"last\":8}"},
    {with(R"("evaluate": {"rows": {"last": 0}})"),
     "quick.json: /evaluate/rows/last: must be an integer >= 1, is 0"},
    {with(R"("evaluate": {"rows": {"evry": 4}})"),
     "quick.json: /evaluate/rows/evry: unknown key of rows; did you mean every?"},
    {with(R"("evaluate": {"rows": [5, 5]})"),
     "quick.json: /evaluate/rows/1: 5 is given twice on this axis, first at /evaluate/rows/0; keep "
     "one of them"},
    {with(R"("seeds": 3)"),
     "quick.json: /seeds: must be {\"first\": a, \"count\": m} or a list of seeds, is 3"},
    {with(R"("seeds": [])"),
     "quick.json: /seeds: is an empty axis; list at least one value, or leave it out"},
    {with(R"("seeds": [0, 4294967296])"),
     "quick.json: /seeds/1: must be an integer from 0 to 4294967295, is 4294967296"},
    {with(R"("seeds": [-1])"),
     "quick.json: /seeds/0: must be an integer from 0 to 4294967295, is -1"},
    {with(R"("seeds": [7, 8, 7])"),
     "quick.json: /seeds/2: 7 is given twice on this axis, first at /seeds/0; keep one of them"},
    {with(R"("seeds": {"first": 4294967295, "count": 2})"),
     "quick.json: /seeds: the last seed, 4294967296, is not below 2^32; lower first or count"},
    {with(R"("seeds": {"count": 1000001})"),
     "quick.json: /seeds/count: must be an integer from 1 to 1000000, is 1000001"},
    {with(R"("seeds": {"count": 0})"),
     "quick.json: /seeds/count: must be an integer from 1 to 1000000, is 0"},
    {with(R"("seeds": {"start": 1})"),
     "quick.json: /seeds/start: unknown key of seeds; it has first, count"},
    {with(R"("memory": {"element_bytes": 3})"),
     "quick.json: /memory/element_bytes: must be 1 or 2 or 4 or 8, is 3"},
    {with(R"("memory": {"element_bytes": "fp16"})"),
     "quick.json: /memory/element_bytes: must be an integer from 1 to 8, is \"fp16\""},
    {with(R"("output": {"rows": "yes"})"),
     "quick.json: /output/rows: must be true or false, is \"yes\""},
    // Entries.
    {sweep("\"exact\""),
     "quick.json: /algorithms/0: must be an object with algorithm, params, label, where, is "
     "\"exact\""},
    {sweep(R"({"params": {}})"),
     "quick.json: /algorithms/0/algorithm: this key is missing; name an algorithm (kvbench list "
     "algorithms)"},
    {sweep(entry("snapvk", "")),
     "quick.json: /algorithms/0/algorithm: unknown algorithm snapvk; did you mean snapkv?"},
    {sweep(entry("quest", "")),
     "quick.json: /algorithms/0/algorithm: unknown algorithm quest; see kvbench list algorithms"},
    {sweep(R"({"algorithm": "exact", "parms": {}})"),
     "quick.json: /algorithms/0/parms: unknown key of an entry of algorithms; did you mean "
     "params?"},
    {sweep(R"({"algorithm": "exact", "params": []})"),
     "quick.json: /algorithms/0/params: must be an object of parameters, is []"},
    {sweep(R"({"algorithm": "exact", "label": "a/b"})"),
     "quick.json: /algorithms/0/label: must be a name in quotes, not empty, without \"/\" and "
     "without control characters, is "
     "\"a/b\""},
    {sweep(R"({"algorithm": "exact", "label": ""})"),
     "quick.json: /algorithms/0/label: must be a name in quotes, not empty, without \"/\" and "
     "without control characters, is "
     "\"\""},
    {sweep(R"({"algorithm": "exact", "where": {"layrs": [1]}})"),
     "quick.json: /algorithms/0/where/layrs: unknown key of where; did you mean layers?"},
    {sweep(R"({"algorithm": "exact", "where": {"layers": ["0"]}})"),
     "quick.json: /algorithms/0/where/layers/0: must be an integer from 0 to 1000000, is \"0\""},
    // Parameters.
    {sweep(entry("exact", "") + ", " + entry("window", "\"budget\": 8") + ", " +
           entry("snapkv", "\"budgt\": 512, \"budget\": 512")),
     "quick.json: /algorithms/2/params/budgt: unknown parameter of snapkv; did you mean budget?"},
    {sweep(entry("snapkv", "\"budgt\": 512")),
     "quick.json: /algorithms/0/params/budgt: unknown parameter of snapkv; did you mean budget?"},
    {sweep(entry("exact", "\"budget\": 512")),
     "quick.json: /algorithms/0/params/budget: unknown parameter of exact; it has none"},
    {sweep(entry("window", "\"budget\": 512, \"temperature\": 1")),
     "quick.json: /algorithms/0/params/temperature: unknown parameter of window; it has budget"},
    {sweep(R"({"algorithm": "window"})"),
     "quick.json: /algorithms/0/params/budget: this key is missing; window needs a value for "
     "budget"},
    {sweep(entry("window", "\"budget\": [64, 0]")),
     "quick.json: /algorithms/0/params/budget/1: must be an integer >= 1 (tokens) or a fraction "
     "between 0 and 1, is 0"},
    {sweep(entry("window", "\"budget\": []")),
     "quick.json: /algorithms/0/params/budget: is an empty axis; list at least one value, or leave "
     "budget out"},
    {sweep(entry("window", "\"budget\": [8, 16, 8]")),
     "quick.json: /algorithms/0/params/budget/2: 8 is given twice on this axis, first at "
     "/algorithms/0/params/budget/0; keep one of them"},
    {sweep(entry("snapkv", "\"budget\": 64, \"pool\": \"avgg\"")),
     "quick.json: /algorithms/0/params/pool: must be one of max, avg, is \"avgg\"; did you mean "
     "avg?"},
    {sweep(entry("snapkv", "\"budget\": 64, \"kernel\": [5, 6]")),
     "quick.json: /algorithms/0/params/kernel/1: must be odd, is 6"},
    {sweep(entry("uniform", "\"T\": 1, \"replacement\": 1")),
     "quick.json: /algorithms/0/params/replacement: must be true or false, is 1"},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4, \"s\": 2e15")),
     "quick.json: /algorithms/0/params/s: must be an integer from 1 to 1e+15, is 2e+15"},
    {sweep(entry("subgen", "\"delta\": 1, \"epsilon\": 0")),
     "quick.json: /algorithms/0/params/epsilon: must be a number > 0 and <= 1, is 0"},
    // Exclusive parameters.
    {sweep(entry("subgen", "\"t\": 4, \"s\": 64")),
     "quick.json: /algorithms/0/params: none of delta, delta_quantile is given; give exactly one "
     "of: delta, or delta_quantile"},
    {sweep(entry("subgen", "\"delta\": 1, \"delta_quantile\": 0.1, \"t\": 4, \"s\": 64")),
     "quick.json: /algorithms/0/params: delta and delta_quantile exclude each other; give exactly "
     "one of: delta, or delta_quantile"},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4")),
     "quick.json: /algorithms/0/params: s is missing beside t; give exactly one of: t and s, or "
     "epsilon"},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4, \"s\": 64, \"epsilon\": 0.5")),
     "quick.json: /algorithms/0/params: t and s and epsilon exclude each other; give exactly one "
     "of: t and s, or epsilon"},
    {sweep(entry("subgen", "\"delta\": 1, \"t\": 4, \"epsilon\": 0.5")),
     "quick.json: /algorithms/0/params: t and epsilon exclude each other; give exactly one of: t "
     "and s, or epsilon"},
    {sweep(entry("uniform", "")),
     "quick.json: /algorithms/0/params: none of T, budget is given; give exactly one of: T, or "
     "budget"},
    {sweep(entry("uniform", "\"T\": [1, 2], \"budget\": 64")),
     "quick.json: /algorithms/0/params: T and budget exclude each other; give exactly one of: T, "
     "or budget"},
    // Cells that two entries describe.
    {sweep(entry("window", "\"budget\": [64, 128]") + ", " +
           R"({"algorithm": "window", "params": {"budget": 128.0}, "label": "other"})"),
     "quick.json: /algorithms/1: describes the same cells as /algorithms/0 (window with budget "
     "128); remove one of them, or part them with \"where\""},
    {sweep(entry("window", "\"budget\": 32") + ", " + entry("window", "\"budget\": 64") + ", " +
           R"({"algorithm": "window", "params": {"budget": [16, 64, 32]}, "label": "other"})"),
     "quick.json: /algorithms/2: describes the same cells as /algorithms/0 (window with budget "
     "32); "
     "remove one of them, or part them with \"where\""},
    {sweep(entry("snapkv", "\"budget\": 64, \"kernel\": [3, 5]") + ", " +
           entry("snapkv", "\"budget\": [32, 64], \"kernel\": 7") + ", " +
           entry("snapkv", "\"budget\": [16, 64], \"kernel\": [5, 9]")),
     "quick.json: /algorithms/2: describes the same cells as /algorithms/0 (snapkv with budget 64, "
     "window 32, kernel 5, pool max); remove one of them, or part them with \"where\""},
    {sweep(R"({"algorithm": "clustergen", "params": {"delta": 1, "t": 4, "s": 64}}, )" +
           entry("subgen", "\"delta\": 1.0, \"t\": 4, \"s\": 64, \"sampling\": \"v2\"")),
     "quick.json: /algorithms/1: describes the same cells as /algorithms/0 (subgen with delta 1.0, "
     "t 4, s 64, sampling v2, c theory); remove one of them, or part them with \"where\""},
    {sweep(R"({"algorithm": "exact", "where": {"layers": [0, 1]}}, )"
           R"({"algorithm": "exact", "where": {"layers": [1, 2], "kv_heads": [0]}})"),
     "quick.json: /algorithms/1: describes the same cells as /algorithms/0 (exact); remove one of "
     "them, or part them with \"where\""},
    // Size.
    {sweep(entry("subgen",
                 R"("delta": 1, "t": {"range": [1, 10000, 1]}, "s": {"range": [1, 10000, 1]})")),
     "quick.json: /algorithms/0/params: its axes make 100000000 points, and a sweep has at most "
     "10000000 cells; shorten an axis"},
    {sweep(entry("subgen", R"("delta": 1, "t": {"range": [1, 11, 1]}, "s": 1)"),
           R"("seeds": {"count": 1000000})"),
     "quick.json: /algorithms: describes 11000000 cells for each KV head, and a sweep has at most "
     "10000000; shorten an axis or the seeds"},
};

TEST_CASE("every fault names file, place and remedy") {
  const SweepFolder folder;
  for (const Case& wrong : kCases) {
    CAPTURE(wrong.text);
    const auto messages = folder.faults(wrong.text);
    REQUIRE(messages.size() == 1);
    CHECK(messages[0] == wrong.message);
  }
}

TEST_CASE("a dump that is not there names the folder it was looked for in") {
  const SweepFolder folder;
  const std::string text =
      R"({"schema_version": 1, "name": "q", "dumps": ["no.h5", "*.hdf5", "."], "algorithms": [{"algorithm": "exact"}]})";
  const auto messages = folder.faults(text);
  REQUIRE(messages.size() == 3);
  CHECK(
      messages[0].find("quick.json: /dumps/0: there is no file no.h5; relative paths start at the "
                       "folder of the sweep file, /") == 0);
  CHECK(messages[1].find("quick.json: /dumps/1: no file matches *.hdf5; relative paths") == 0);
  CHECK(messages[2] ==
        "quick.json: /dumps/2: . is a folder; name the dumps in it, for example ./*.h5");
}

TEST_CASE("syntax errors name line and column") {
  const SweepFolder folder;
  const auto place = [&](const std::string& text) {
    const auto messages = folder.faults(text);
    REQUIRE(messages.size() == 1);
    return messages[0].substr(0, messages[0].find(": not JSON here: "));
  };
  CHECK(place("{\n  \"name\": quick\n}") == "quick.json:2:11");
  CHECK(place("{\"a\": 1,}") == "quick.json:1:9");
  CHECK(place("{\"a\": 1}\n\n  x") == "quick.json:3:3");
  CHECK(place("{\"a\": 1e999}") == "quick.json:1:11");
  CHECK(place("{ // comment\n /* never closed") == "quick.json:2:17");
}

TEST_CASE("all faults of a file are reported together") {
  const SweepFolder folder;
  const auto messages = folder.faults(R"({
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
  const auto messages = folder.faults(with(R"("a\nb": 1)"));
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].find("quick.json: /a\\u000ab: unknown key") == 0);
}

TEST_CASE("thousands of faults are counted, not printed") {
  const SweepFolder folder;
  std::string rows;
  for (int i = 0; i < 5000; ++i) rows += (i == 0 ? "" : ", ") + std::string("-") + "1";
  const auto messages = folder.faults(with("\"evaluate\": {\"rows\": [" + rows + "]}"));
  REQUIRE(messages.size() == 1001);
  CHECK(messages.back() == "quick.json: and 4000 more errors; fix those above first");
}

TEST_CASE("a sweep file that cannot be read is named") {
  const SweepFolder folder;
  const auto read = [&](const std::string& name) {
    return folder.messages([&] { read_sweep(folder.file(name), {}, made_up_algorithms()); });
  };
  CHECK(read("none.json") ==
        std::vector<std::string>{"none.json: cannot read: No such file or directory; name a "
                                 "sweep file (JSON, configs/README.md)"});
  const auto folder_given =
      folder.messages([&] { read_sweep(folder.file(""), {}, made_up_algorithms()); });
  REQUIRE(folder_given.size() == 1);
  CHECK(folder_given[0].find("is a folder; name a sweep file") != std::string::npos);
}

TEST_CASE("--set that cannot be applied is a fault") {
  const SweepFolder folder;
  const std::string text = with("\"seeds\": [1]");
  const auto fault = [&](const std::string& set) {
    const auto messages = folder.faults(text, {set});
    REQUIRE_FALSE(messages.empty());
    return messages[0];
  };
  CHECK(fault("/seeds") ==
        "quick.json: --set /seeds: must be /pointer=value, for example --set /select/layers=[0]");
  CHECK(fault("seeds=1") ==
        "quick.json: --set seeds=1: must be /pointer=value, for example --set /select/layers=[0]");
  CHECK(fault("/seeds/2=1") ==
        "quick.json: --set /seeds/2: 2 is no index of the list there, which has 1 elements");
  CHECK(fault("/name/x=1") == "quick.json: --set /name/x: /name has no x inside, it is \"quick\"");
  CHECK(fault(R"(/select={"tokens": 1, "tokens": 2})") ==
        "quick.json: --set /select /tokens: this key is given twice in one object; keep one of "
        "them");
  CHECK(fault("/name=\xff") ==
        "quick.json: --set /name: is not UTF-8; give the value in that encoding");
  CHECK(fault("/selct/layers=[0]") ==
        "quick.json: /selct: unknown key of a sweep file; did you mean select?");
}

}  // namespace
}  // namespace kvbench::test
