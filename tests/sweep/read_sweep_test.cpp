#include "sweep/read_sweep.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "support/sanitized.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/plan.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace config_test {

using nlohmann::json;

std::vector<std::string> points(const SweepConfig& config, std::size_t entry = 0) {
  std::vector<std::string> texts;
  const SweepEntry& swept = config.entries.at(entry);
  for (Index i = 0; i < swept.points(); ++i) texts.push_back(params_json(swept.point(i)).dump());
  return texts;
}

TEST_CASE("a sweep of three keys has every default") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(sweep(entry("exact", "")));
  CHECK(config.name == "quick");
  CHECK(config.dumps == std::vector<std::string>{folder.file("a.h5")});
  CHECK(config.select == Selection{});
  CHECK(config.tokens.empty());
  CHECK_FALSE(config.prompt_tokens);
  CHECK(config.rows == "all");
  CHECK(config.seeds == std::vector<std::uint32_t>{0});
  CHECK(config.element_bytes == 2);
  CHECK_FALSE(config.keep_rows);
  REQUIRE(config.entries.size() == 1);
  CHECK(config.entries[0].label == "exact");
  CHECK(config.entries[0].pointer == "/algorithms/0");
  CHECK(points(config) == std::vector<std::string>{"{}"});
}

TEST_CASE("every key is read") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(R"(// comments are welcome
    {
      "schema_version": 1, "name": "night-2.b_1", "dumps": ["[ab].h5", "c.h5"], // globs too
      "select": {"sequences": ["0", "x"], "layers": {"range": [0, 4, 2]}, "kv_heads": [1], "tokens": 2048},
      "replay": {"prompt_tokens": 0.875},
      "evaluate": {"rows": {"every": 16.0}},
      "seeds": {"first": 4294967293, "count": 3},
      "memory": {"element_bytes": 4},
      "output": {"rows": true},
      "algorithms": [{"algorithm": "window", "params": {"budget": 64}, "label": "w", "where": {"layers": [2], "sequences": ["x"], "kv_heads": "all"}}]
    })");
  CHECK(config.name == "night-2.b_1");
  CHECK(config.dumps ==
        std::vector<std::string>{folder.file("a.h5"), folder.file("b.h5"), folder.file("c.h5")});
  CHECK(config.select.sequences == std::vector<std::string>{"0", "x"});
  CHECK(config.select.layers == std::vector<int>{0, 2, 4});
  CHECK(config.select.kv_heads == std::vector<int>{1});
  CHECK(config.tokens == std::vector<Index>{2048});
  CHECK(config.prompt_tokens == Value(0.875));
  CHECK(config.rows.dump() == R"({"every":16})");
  CHECK(config.seeds == std::vector<std::uint32_t>{4294967293u, 4294967294u, 4294967295u});
  CHECK(config.element_bytes == 4);
  CHECK(config.keep_rows);
  CHECK(config.entries[0].label == "w");
  CHECK(config.entries[0].where.layers == std::vector<int>{2});
  CHECK(config.entries[0].where.sequences == std::vector<std::string>{"x"});
  CHECK_FALSE(config.entries[0].where.kv_heads);
}

TEST_CASE("the forms of prompt_tokens, rows and seeds") {
  const SweepFolder folder;
  const auto parsed = [&](const std::string& more) {
    return folder.parse(sweep(entry("exact", ""), more));
  };
  CHECK(parsed(R"("replay": {"prompt_tokens": 1792.0})").prompt_tokens ==
        Value(std::int64_t{1792}));
  CHECK(parsed(R"("replay": {"prompt_tokens": 0})").prompt_tokens == Value(std::int64_t{0}));
  CHECK(parsed(R"("replay": {"prompt_tokens": "dump"})").prompt_tokens ==
        Value(std::string("dump")));
  CHECK_FALSE(parsed(R"("replay": {"prompt_tokens": "default"})").prompt_tokens);
  CHECK(parsed(R"("evaluate": {"rows": {"last": 256}})").rows.dump() == R"({"last":256})");
  CHECK(parsed(R"("evaluate": {"rows": [9, 7.0]})").rows.dump() == "[9,7]");
  const auto of_prompt = [&](const std::string& form) {
    return parsed(R"("evaluate": {"rows": {"prompt": )" + form + "}}").rows.dump();
  };
  CHECK(of_prompt("\"all\"") == R"({"prompt":"all"})");
  CHECK(of_prompt(R"({"every": 64.0})") == R"({"prompt":{"every":64}})");
  CHECK(of_prompt(R"({"last": 8})") == R"({"prompt":{"last":8}})");
  CHECK(of_prompt("[9, 0]") == R"({"prompt":[9,0]})");
  CHECK(parsed(R"("seeds": [42, 7, 8])").seeds == std::vector<std::uint32_t>{42, 7, 8});
  CHECK(parsed(R"("seeds": {"first": 5})").seeds == std::vector<std::uint32_t>{5});
  CHECK(parsed(R"("seeds": {"count": 3})").seeds == std::vector<std::uint32_t>{0, 1, 2});
}

TEST_CASE("axes cross in the order of the table, the last fastest") {
  const SweepFolder folder;
  const SweepConfig config =
      folder.parse(sweep(entry("snapkv", R"("pool": ["avg", "max"], "budget": {"pow2": [6, 7]})") +
                         ", " + entry("exact", "")));
  CHECK(points(config) ==
        std::vector<std::string>{R"({"budget":64,"kernel":7,"pool":"avg","window":32})",
                                 R"({"budget":64,"kernel":7,"pool":"max","window":32})",
                                 R"({"budget":128,"kernel":7,"pool":"avg","window":32})",
                                 R"({"budget":128,"kernel":7,"pool":"max","window":32})"});
  std::vector<std::string> names;
  const Params first = config.entries[0].point(0);
  for (const auto& item : first.entries()) names.push_back(item.first);
  CHECK(names == std::vector<std::string>{"budget", "window", "kernel", "pool"});
}

TEST_CASE("alternatives that were not chosen leave no parameter behind") {
  const SweepFolder folder;
  const SweepConfig config =
      folder.parse(sweep(entry("subgen", R"("delta_quantile": 0.05, "epsilon": [0.5, 1])") + ", " +
                         entry("subgen", R"("delta": 3, "t": 4, "s": 64)") + ", " +
                         entry("uniform", R"("budget": 0.5)")));
  CHECK(points(config, 0) ==
        std::vector<std::string>{
            R"({"c":"theory","delta_quantile":0.05,"epsilon":0.5,"sampling":"v2"})",
            R"({"c":"theory","delta_quantile":0.05,"epsilon":1.0,"sampling":"v2"})"});
  CHECK(points(config, 1) ==
        std::vector<std::string>{R"({"c":"theory","delta":3.0,"s":64,"sampling":"v2","t":4})"});
  CHECK(points(config, 2) ==
        std::vector<std::string>{R"({"budget":0.5,"replacement":false,"sinks":256})"});
}

TEST_CASE("an alias resolves to the id") {
  const SweepFolder folder;
  const SweepConfig config =
      folder.parse(sweep(entry("clustergen", R"("delta": 1, "epsilon": 1)")));
  CHECK(config.entries[0].algorithm->id == "subgen");
  CHECK(config.entries[0].label == "subgen");
  CHECK(config.resolved["algorithms"][0]["algorithm"] == "subgen");
}

TEST_CASE("entries that cannot meet may describe the same point") {
  const SweepFolder folder;
  const std::string first = R"({"algorithm": "exact", "where": {"layers": [0]}}, )";
  CHECK(
      folder.errors(sweep(first + R"({"algorithm": "exact", "where": {"layers": [1]}})")).empty());
  CHECK(folder.errors(sweep(first + R"({"algorithm": "exact", "where": {"kv_heads": [1]}})"))
            .size() == 1);
  // The sweep's own selection parts them.
  const std::string both = R"({"algorithm": "exact", "where": {"kv_heads": [0, 1]}}, )"
                           R"({"algorithm": "exact", "where": {"kv_heads": [1, 2]}})";
  CHECK(folder.errors(sweep(both)).size() == 1);
  CHECK(folder.errors(sweep(both, R"("select": {"kv_heads": [0, 2]})")).empty());
}

TEST_CASE(
    "an entry is refused if and only if it meets an earlier one that was not, the first of them") {
  // An entry has its budgets, none for exact, and its layers, none for all.
  struct Drawn {
    std::vector<int> budgets, layers;
  };
  const auto share = [](const std::vector<int>& a, const std::vector<int>& b) {
    return std::any_of(a.begin(), a.end(),
                       [&](int x) { return std::find(b.begin(), b.end(), x) != b.end(); });
  };
  const auto meet = [&](const Drawn& a, const Drawn& b) {
    const bool point = a.budgets.empty() ? b.budgets.empty() : share(a.budgets, b.budgets);
    return point && (a.layers.empty() || b.layers.empty() || share(a.layers, b.layers));
  };
  std::mt19937 draw(1);
  const auto some = [&](int from, int to) {
    std::vector<int> values;
    for (int i = from; i < to; ++i) {
      if (draw() % 3 == 0) values.push_back(i);
    }
    return values;
  };
  const SweepFolder folder;
  std::size_t refused = 0, alone = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Drawn> entries;
    std::string text;
    for (int i = 0; i < 8; ++i) {
      Drawn drawn{some(1, 7), some(0, 6)};
      std::string json = drawn.budgets.empty()
                             ? std::string(R"({"algorithm": "exact")")
                             : R"({"algorithm": "window", "params": {"budget": )" +
                                   nlohmann::json(drawn.budgets).dump() + "}";
      if (!drawn.layers.empty()) {
        json += R"(, "where": {"layers": )" + nlohmann::json(drawn.layers).dump() + "}";
      }
      text += (text.empty() ? "" : ", ") + json + "}";
      entries.push_back(std::move(drawn));
    }
    std::vector<std::string> expected;
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto first = std::find_if(kept.begin(), kept.end(),
                                      [&](std::size_t j) { return meet(entries[i], entries[j]); });
      if (first == kept.end()) {
        kept.push_back(i);
      } else {
        expected.push_back("/algorithms/" + std::to_string(i) +
                           ": describes the same cells as /algorithms/" + std::to_string(*first) +
                           " ");
      }
    }
    const std::vector<std::string> found = folder.errors(sweep(text));
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i].find(expected[i]) != std::string::npos);
    }
    refused += expected.size();
    alone += kept.size();
  }
  CHECK(refused > 100);
  CHECK(alone > 100);
}

TEST_CASE("hundred thousand entries, equal ones or of a layer each, are not compared pair by pair" *
          doctest::skip(kSanitized)) {
  const SweepFolder folder;
  std::string equal, apart;
  for (int i = 0; i < 100'000; ++i) {
    const std::string begin = i == 0 ? "" : ", ";
    equal += begin + R"({"algorithm": "exact"})";
    apart += begin + R"({"algorithm": "exact", "where": {"layers": [)" + std::to_string(i) + "]}}";
  }
  CHECK(folder.errors(sweep(equal)).size() == 1001);
  CHECK(folder.errors(sweep(apart)).empty());
}

TEST_CASE("a sweep whose text would be longer than the header of a journal may be is refused" *
          doctest::skip(kSanitized)) {
  const SweepFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += (i == 0 ? "" : ", ") + (R"({"algorithm": "exact", "label": ")" + std::to_string(i)) +
            std::string(900'000, 'x') + "\"}";
  }
  const auto errors = folder.errors(sweep(text));
  REQUIRE(!errors.empty());
  CHECK(errors.back().find("/algorithms: makes a sweep of more than 48 MiB") != std::string::npos);
}

TEST_CASE("--set replaces, adds and appends before anything is checked") {
  const SweepFolder folder;
  const std::string text = sweep(entry("window", R"("budget": "wrong")"), R"("seeds": [1, 2])");
  const SweepConfig config =
      folder.parse(text, {"/algorithms/0/params/budget=[64, 128]", "/replay/prompt_tokens=dump",
                          "/seeds/-=9", "/seeds/0=7", "/name=other", "/select/layers=[0]",
                          R"(/algorithms/-={"algorithm": "exact"})", "/dumps/0=b.h5"});
  CHECK(points(config) == std::vector<std::string>{R"({"budget":64})", R"({"budget":128})"});
  CHECK(config.prompt_tokens == Value(std::string("dump")));
  CHECK(config.seeds == std::vector<std::uint32_t>{7, 2, 9});
  CHECK(config.name == "other");
  CHECK(config.select.layers == std::vector<int>{0});
  CHECK(config.entries.size() == 2);
  CHECK(config.dumps == std::vector<std::string>{folder.file("b.h5")});
}

TEST_CASE("the resolved sweep is a sweep file that means the same") {
  const SweepFolder folder;
  for (const std::string& more :
       {std::string(), std::string(R"("select": {"layers": [1], "tokens": 64}, "seeds": [3, 1],
        "replay": {"prompt_tokens": 0.5}, "evaluate": {"rows": {"last": 3}}, "output": {"rows": true})")}) {
    const SweepConfig config =
        folder.parse(sweep(entry("window", R"("budget": {"logspace": [1, 100, 3]})") + ", " +
                               R"({"algorithm": "subgen", "label": "s", "where": {"kv_heads": [0]},
                      "params": {"delta": {"range": [0.1, 0.5, 0.1]}, "epsilon": 0.5}})",
                           more));
    const SweepConfig again =
        parse_sweep(config.resolved.dump(), "/elsewhere/x.json", {}, made_up_algorithms());
    CHECK(again.resolved == config.resolved);
    CHECK(again.dumps == config.dumps);
    CHECK(again.seeds == config.seeds);
    CHECK(again.select == config.select);
    CHECK(again.rows == config.rows);
    CHECK(again.prompt_tokens == config.prompt_tokens);
    for (std::size_t e = 0; e < 2; ++e) {
      CHECK(points(again, e) == points(config, e));
      CHECK(again.entries[e].label == config.entries[e].label);
      CHECK(again.entries[e].where == config.entries[e].where);
    }
  }
}

TEST_CASE("the resolved sweep lists axes and defaults") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(sweep(entry("uniform", R"("T": {"range": [1, 3, 1]})")));
  CHECK(config.resolved["algorithms"][0] ==
        json::parse(R"({"algorithm": "uniform", "label": "uniform",
                        "params": {"T": [1, 2, 3], "sinks": 256, "replacement": false}})"));
  CHECK(config.resolved["seeds"] == json::parse(R"({"first": 0, "count": 1})"));
  CHECK(config.resolved["memory"] == json::parse(R"({"element_bytes": 2})"));
}

TEST_CASE("one value is a list of one, where nothing else can be meant") {
  const SweepFolder folder;
  const SweepConfig listed = folder.parse(
      R"({"schema_version": 1, "name": "q", "dumps": ["a.h5"], "algorithms": [{"algorithm": "exact"}],
          "select": {"layers": [1], "kv_heads": [0], "sequences": ["0"]}})");
  const SweepConfig single = folder.parse(
      R"({"schema_version": 1, "name": "q", "dumps": "a.h5", "algorithms": {"algorithm": "exact"},
          "select": {"layers": 1.0, "kv_heads": 0, "sequences": "0"}})");
  CHECK(single.resolved == listed.resolved);
}

TEST_CASE("relative dump paths start at the sweep file's folder, whatever its name") {
  const SweepFolder folder;
  std::filesystem::create_directories(folder.file("od[d] *folder/configs"));
  std::ofstream(folder.file("od[d] *folder/x1.h5")) << "x";
  const std::string text =
      R"({"schema_version": 1, "name": "q", "dumps": ["../x?.h5"], "algorithms": [{"algorithm": "exact"}]})";
  std::ofstream(folder.file("od[d] *folder/configs/q.json")) << text;
  const SweepConfig config =
      read_sweep(folder.file("od[d] *folder/configs/q.json"), {}, made_up_algorithms());
  CHECK(config.dumps == std::vector<std::string>{folder.file("od[d] *folder/x1.h5")});
}

}  // namespace config_test
}  // namespace kvbench::test
