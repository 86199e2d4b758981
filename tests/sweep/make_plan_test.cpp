#include "sweep/make_plan.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <set>

#include "algorithms/registry.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/prompt_length.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep_folder.hpp"
#include "system/hash.hpp"

namespace kvbench::test {
namespace plan_test {

using nlohmann::json;

std::vector<std::string> paths(const Plan& plan) {
  std::vector<std::string> result;
  for (const PlannedCell& cell : plan.cells) {
    result.push_back(cell_path(plan, cell) +
                     (cell.seed ? " seed " + std::to_string(*cell.seed) : ""));
  }
  return result;
}

std::set<std::string> ids(const Plan& plan) {
  std::set<std::string> result;
  for (const PlannedCell& cell : plan.cells) result.insert(cell.id);
  return result;
}

TEST_CASE("cells come by group, head, entry, point and seed") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(
      sweep(entry("uniform", R"("T": [1, 2])") + ", " + entry("exact", ""), R"("seeds": [5, 3])"));
  const Plan plan = make_plan(config, {planned_dump("a", 100, {0, 4}, 2)});
  REQUIRE(plan.groups.size() == 2);
  CHECK(plan.groups[0].layer == 0);
  CHECK(plan.groups[1].layer == 4);
  CHECK(plan.cells.size() == 2 * 2 * (2 * 2 + 1));
  CHECK(paths(plan) == std::vector<std::string>{"uniform/uniform/0/0/0 seed 5",
                                                "uniform/uniform/0/0/0 seed 3",
                                                "uniform/uniform/0/0/0 seed 5",
                                                "uniform/uniform/0/0/0 seed 3",
                                                "exact/exact/0/0/0",
                                                "uniform/uniform/0/0/1 seed 5",
                                                "uniform/uniform/0/0/1 seed 3",
                                                "uniform/uniform/0/0/1 seed 5",
                                                "uniform/uniform/0/0/1 seed 3",
                                                "exact/exact/0/0/1",
                                                "uniform/uniform/0/4/0 seed 5",
                                                "uniform/uniform/0/4/0 seed 3",
                                                "uniform/uniform/0/4/0 seed 5",
                                                "uniform/uniform/0/4/0 seed 3",
                                                "exact/exact/0/4/0",
                                                "uniform/uniform/0/4/1 seed 5",
                                                "uniform/uniform/0/4/1 seed 3",
                                                "uniform/uniform/0/4/1 seed 5",
                                                "uniform/uniform/0/4/1 seed 3",
                                                "exact/exact/0/4/1"});
  for (std::size_t g = 0; g < 2; ++g) {
    CHECK(plan.groups[g].cells.size() == 10);
    for (const std::size_t cell : plan.groups[g].cells) CHECK(plan.cells[cell].group == g);
  }
  CHECK(plan.cells[1].params == plan.cells[0].params);
  CHECK(plan.cells[2].params->at("T") == Value{std::int64_t{2}});
  CHECK(ids(plan).size() == plan.cells.size());
}

TEST_CASE("a cell's key is its identity and its id is frozen") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(
      sweep(entry("subgen", R"("delta_quantile": 0.05, "t": 16, "s": 512)"),
            R"("seeds": [3], "evaluate": {"rows": {"every": 4}}, "select": {"tokens": 64})"));
  const Plan plan = make_plan(config, {planned_dump("a", 100, {1}, 1)});
  REQUIRE(plan.cells.size() == 1);
  const json key = cell_key(plan, plan.cells[0]);
  CHECK(key.dump() ==
        R"({"algorithm":"subgen","device":"cpu","dump":"fingerprint-of-a","element_bytes":2,)"
        R"("kv_head":0,"layer":1,"params":{"c":"theory","delta_quantile":0.05,"s":512,)"
        R"("sampling":"v2","t":16},"prompt_tokens":32,"rows":{"every":4},"seed":3,)"
        R"("sequence":"0","tokens":64})");
  // Journals are resumed and files compared by ids: a change here orphans every result so far.
  CHECK(plan.cells[0].id == "d2d6e726bbb74b0e6f1d91f4af4b97b6");
}

TEST_CASE("every id is the hash of its key's canonical JSON") {
  const SweepFolder folder;
  const SweepConfig config =
      folder.parse(sweep(entry("uniform", R"("T": [1, 2])") + ", " + entry("exact", "") + ", " +
                             entry("window", R"("budget": [0.1, 17])"),
                         R"("seeds": {"count": 2}, "evaluate": {"rows": [98, 99]})"));
  PlannedDump dump = planned_dump("a", 100, {0, 4}, 2);
  dump.sequences[0].name = "quo\"te \\ \xc3\xa9";
  const Plan plan = make_plan(config, {dump}, {}, "cuda");
  for (const PlannedCell& cell : plan.cells) {
    CHECK(cell.id == hash128_hex(cell_key(plan, cell).dump()));
  }
  CHECK(cell_key(plan, plan.cells[0])["device"] == "cuda");
}

TEST_CASE("ids do not depend on label, order, path or what else is swept") {
  const SweepFolder folder;
  const auto planned = [&](const std::string& text, PlannedDump dump) {
    return make_plan(folder.parse(text), {std::move(dump)});
  };
  const Plan one =
      planned(sweep(entry("window", R"("budget": [8, 16])") + ", " + entry("exact", "")),
              planned_dump("a", 100, {0, 4}, 2));
  PlannedDump elsewhere = planned_dump("a", 100, {0, 4}, 2);
  elsewhere.path = "/somewhere/else.h5";
  elsewhere.model = "renamed";
  const Plan two =
      planned(sweep(entry("exact", "") + ", " +
                    R"({"algorithm": "window", "label": "w", "params": {"budget": [16.0, 8]}})"),
              elsewhere);
  CHECK(ids(one) == ids(two));
  CHECK(one.hash != two.hash);  // the plan's hash is of the ordered ids
  const Plan part = planned(sweep(entry("window", R"("budget": 8)"),
                                  R"("select": {"layers": [4]}, "seeds": {"count": 7})"),
                            planned_dump("a", 100, {0, 4}, 2));
  REQUIRE(part.cells.size() == 2);
  for (const std::string& id : ids(part)) CHECK(ids(one).count(id) == 1);
}

TEST_CASE("everything that a record depends on changes the id") {
  const SweepFolder folder;
  const auto id = [&](const std::string& algorithms, const std::string& more,
                      const PlannedDump& dump) {
    return make_plan(folder.parse(sweep(algorithms, more)), {dump}).cells.front().id;
  };
  const PlannedDump dump = planned_dump("a", 100, {0}, 1);
  const std::string window = entry("window", R"("budget": 8)");
  std::set<std::string> different = {id(window, "", dump),
                                     id(entry("window", R"("budget": 9)"), "", dump),
                                     id(entry("exact", ""), "", dump),
                                     id(window, R"("select": {"tokens": 99})", dump),
                                     id(window, R"("replay": {"prompt_tokens": 49})", dump),
                                     id(window, R"("evaluate": {"rows": {"last": 50}})", dump),
                                     id(window, R"("memory": {"element_bytes": 4})", dump),
                                     id(window, "", planned_dump("b", 100, {0}, 1)),
                                     id(window, "", planned_dump("a", 100, {1}, 1)),
                                     id(entry("uniform", R"("T": 1)"), R"("seeds": [0])", dump),
                                     id(entry("uniform", R"("T": 1)"), R"("seeds": [1])", dump)};
  CHECK(different.size() == 11);
  // The resolved prompt is what counts, not how it was asked for.
  CHECK(id(window, R"("replay": {"prompt_tokens": 50})", dump) == id(window, "", dump));
  CHECK(id(window, R"("replay": {"prompt_tokens": 0.5})", dump) == id(window, "", dump));
}

TEST_CASE("the default prompt leaves at most 256 rows, or those that have queries") {
  struct Row {
    Index tokens, query_rows, prompt;
  };
  const Row rows[] = {
      {2048, 2048, 1792}, {1024, 1024, 768}, {512, 512, 256},  {511, 511, 256},
      {100, 100, 50},     {3, 3, 2},         {2, 2, 1},        {1, 1, 0},
      {2048, 256, 1792},  {2048, 255, 1793}, {2048, 64, 1984}, {2048, 1, 2047},
      {100, 60, 50},      {100, 20, 80},     {2048, 0, 1792},  {1, 0, 0},
  };
  for (const Row& row : rows) {
    CAPTURE(row.tokens);
    CAPTURE(row.query_rows);
    CHECK(default_prompt(row.tokens, row.query_rows) == row.prompt);
  }
}

TEST_CASE("prompt_tokens: integer, floor of a fraction, or the dump's") {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 2048, {0}, 1);
  dump.sequences[0].prompt_tokens = 1000;
  const auto prompt = [&](const std::string& more) {
    return make_plan(folder.parse(sweep(entry("exact", ""), more)), {dump}).groups.at(0).prompt;
  };
  CHECK(prompt("\"replay\": {}") == 1792);
  CHECK(prompt(R"("replay": {"prompt_tokens": 7})") == 7);
  CHECK(prompt(R"("replay": {"prompt_tokens": 0})") == 0);
  CHECK(prompt(R"("replay": {"prompt_tokens": 0.3})") == 614);
  CHECK(prompt(R"("replay": {"prompt_tokens": 0.0001})") == 0);
  CHECK(prompt(R"("replay": {"prompt_tokens": "dump"})") == 1000);
  CHECK(prompt(R"("replay": {"prompt_tokens": 0.5}, "select": {"tokens": 1025})") == 512);
  CHECK(prompt(R"("select": {"tokens": 1024})") == 768);
}

TEST_CASE("an algorithm's own reason skips its cells and no others") {
  const SweepFolder folder;
  const Plan plan = make_plan(
      folder.parse(sweep(entry("window", R"("budget": [0.001, 0.5])") + ", " + entry("exact", ""))),
      {planned_dump("a", 100, {0}, 1)});
  REQUIRE(plan.cells.size() == 3);
  CHECK(*plan.cells[0].skip_reason == "a budget of 0 tokens");
  CHECK_FALSE(plan.cells[1].skip_reason);
  CHECK_FALSE(plan.cells[2].skip_reason);
}

TEST_CASE("select and where choose sequences, layers and heads") {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0, 1, 4}, 3);
  dump.sequences.push_back(dump.sequences[0]);
  dump.sequences[1].name = "1";
  const auto plan = [&](const std::string& algorithms, const std::string& more) {
    return paths(make_plan(folder.parse(sweep(algorithms, more)), {dump}));
  };
  CHECK(plan(entry("exact", ""), R"("seeds": [1])").size() == 2 * 3 * 3);
  CHECK(plan(entry("exact", ""),
             R"("select": {"sequences": ["1"], "layers": [4, 0], "kv_heads": [2]})") ==
        std::vector<std::string>{"exact/exact/1/0/2", "exact/exact/1/4/2"});
  CHECK(plan(R"({"algorithm": "exact", "where": {"layers": [1], "sequences": ["0"]}},
                {"algorithm": "window", "params": {"budget": 8}, "where": {"kv_heads": [1]}})",
             R"("select": {"layers": [1, 4], "kv_heads": [0, 1]})") ==
        std::vector<std::string>{"exact/exact/0/1/0", "exact/exact/0/1/1", "window/window/0/1/1",
                                 "window/window/0/4/1", "window/window/1/1/1",
                                 "window/window/1/4/1"});
}

TEST_CASE("groups that where leaves empty are not in the plan") {
  const SweepFolder folder;
  const Plan plan =
      make_plan(folder.parse(sweep(R"({"algorithm": "exact", "where": {"layers": [4]}})")),
                {planned_dump("a", 100, {0, 1, 4}, 1)});
  REQUIRE(plan.groups.size() == 1);
  CHECK(plan.groups[0].layer == 4);
  CHECK(plan.cells[0].group == 0);
}

// A plan of real algorithms, since only they report how much they hold.
Plan real_plan(const SweepFolder& folder, const std::string& text, const PlannedDump& dump) {
  return make_plan(parse_sweep(text, folder.file("quick.json"), {}, all_algorithms()), {dump});
}

TEST_CASE("a budget given as memory is its cells' identity and is solved on each group") {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0, 1}, 2);
  dump.sequences[0].layers[1].shape.window = 40;
  const std::string text =
      sweep(entry("window", R"("budget": {"memory": [0.25, 0.5]})") + ", " +
            entry("snapkv", R"("budget": [{"memory": 0.75}, 80], "window": 4)"));
  const Plan plan = real_plan(folder, text, dump);
  REQUIRE(plan.cells.size() == 2 * 2 * 4);
  const auto tokens = [&](std::size_t cell) {
    return std::get<MemoryBudget>(plan.cells[cell].params->at("budget")).solved;
  };
  CHECK(tokens(0) == 25);
  CHECK(tokens(1) == 50);
  CHECK(tokens(2) == 25);  // 50 of 75 are decoded
  CHECK(tokens(8) == 10);
  CHECK(tokens(9) == 20);
  REQUIRE(plan.cells[10].skip_reason);  // snapkv's memory depends on the sliding window
  CHECK_FALSE(plan.cells[11].skip_reason);
  CHECK(plan.cells[0].params == plan.cells[4].params);  // shared by heads
  for (const PlannedCell& cell : plan.cells) {
    CHECK(cell.id == hash128_hex(cell_key(plan, cell).dump()));
  }
  CHECK(cell_key(plan, plan.cells[8])["params"].dump() == R"({"budget":{"memory":0.25}})");
  CHECK(ids(plan).size() == plan.cells.size());
  // The resolved sweep is a sweep of the same cells, and so is one value of another list.
  CHECK(real_plan(folder, plan.config.dump(), dump).hash == plan.hash);
  const Plan one = real_plan(folder, sweep(entry("window", R"("budget": {"memory": 0.5})")), dump);
  for (const std::string& id : ids(one)) CHECK(ids(plan).count(id) == 1);
}

TEST_CASE("numbers of tokens are an axis of groups, each as it would be alone") {
  const SweepFolder folder;
  const PlannedDump dump = planned_dump("a", 100, {0, 4}, 2);
  const auto plan = [&](const std::string& tokens) {
    return make_plan(folder.parse(sweep(entry("window", R"("budget": [8, 0.5])"),
                                        R"("select": {"tokens": )" + tokens + "}")),
                     {dump});
  };
  const Plan all = plan("[100, 64]");
  REQUIRE(all.groups.size() == 4);
  CHECK(all.tokens_vary);
  std::vector<std::pair<int, Index>> order;
  for (const WorkGroup& group : all.groups) order.emplace_back(group.layer, group.shape.tokens);
  CHECK(order == std::vector<std::pair<int, Index>>{{0, 100}, {0, 64}, {4, 100}, {4, 64}});
  CHECK(all.groups[1].prompt == 32);
  std::set<std::string> alone = ids(plan("64"));
  for (const std::string& id : ids(plan("\"all\""))) alone.insert(id);
  CHECK(ids(all) == alone);
  CHECK(cell_key(all, all.cells[4])["tokens"] == 64);
  CHECK(ids(plan(R"({"pow2": [5, 6]})")).size() == 16);
  CHECK_FALSE(plan("[64]").tokens_vary);
  CHECK(make_plan(folder.parse(all.config.dump()), {dump}).hash == all.hash);
  const auto refused = folder.messages([&] { plan("[64, 101]"); });
  REQUIRE(refused.size() == 1);  // the same of both layers
  CHECK(refused[0].find("quick.json: /select/tokens/1: ") == 0);
}

TEST_CASE("several dumps: a layer need not be in all of them") {
  const SweepFolder folder;
  const SweepConfig config =
      folder.parse(sweep(entry("exact", ""), R"("select": {"layers": [0, 5]})"));
  const Plan plan =
      make_plan(config, {planned_dump("a", 100, {0, 1}, 1), planned_dump("b", 50, {0, 5}, 1)});
  CHECK(paths(plan) ==
        std::vector<std::string>{"exact/exact/0/0/0", "exact/exact/0/0/0", "exact/exact/0/5/0"});
  CHECK(plan.groups[1].dump == 1);
  CHECK(plan.groups[0].prompt == 50);
  CHECK(plan.groups[1].prompt == 25);
}

TEST_CASE("--only narrows by id or path, and stars stay within a component") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(sweep(entry("window", R"("budget": [8, 16])") + ", " +
                                                R"({"algorithm": "exact", "label": "truth"})"));
  const std::vector<PlannedDump> dumps = {planned_dump("a", 100, {0, 1, 14}, 2)};
  const Plan all = make_plan(config, dumps);
  const auto only = [&](const std::vector<std::string>& globs) {
    return make_plan(config, dumps, globs);
  };
  const Plan windows = only({"window/*/*/*/*"});
  CHECK(windows.cells.size() == 12);
  CHECK(windows.hash != all.hash);
  CHECK(windows.config == all.config);
  CHECK(paths(only({"*/truth/0/1?/1"})) == std::vector<std::string>{"exact/truth/0/14/1"});
  CHECK(only({"*/*/*/1/*"}).cells.size() == 6);
  CHECK(only({"*/*/*/1/*"}).groups.size() == 1);
  CHECK(only({"*/*/*/1/*", "exact/*/*/*/0"}).cells.size() == 8);
  const std::string id = all.cells[7].id;
  const Plan single = only({id});
  REQUIRE(single.cells.size() == 1);
  CHECK(single.cells[0].id == id);
  CHECK(single.groups.size() == 1);
  CHECK(single.groups[0].cells.size() == 1);
  CHECK(single.groups[0].cells.front() == 0);
  CHECK(only({id.substr(0, 12) + "*"}).cells.size() == 1);
  CHECK(only({"*"}).cells.size() == all.cells.size());  // every id
  const auto refused = folder.messages([&] { only({"window/*", "exact/*/*/*/*", "*/*/2/*/*"}); });
  REQUIRE(refused.size() == 2);
  CHECK(refused[0].find("quick.json: --only window/*: ") == 0);
  CHECK(refused[1].find("quick.json: --only */*/2/*/*: ") == 0);
  const std::string begun = id.substr(0, 8);
  for (const auto& [given, meant] : {std::pair<std::string, std::string>{begun, begun + "*"},
                                     {"window", "window/*/*/*/*"},
                                     {"*/*/0/", "*/*/0/*/*"},
                                     {"truth", "*/truth/*/*/*"}}) {
    const auto hinted = folder.messages([&, glob = given] { only({glob}); });
    REQUIRE(hinted.size() == 1);
    CHECK_MESSAGE(hinted[0].find("did you mean '" + meant + "'?") != std::string::npos, hinted[0]);
  }
}

TEST_CASE("a hundred thousand cells are planned in seconds") {
  const SweepFolder folder;
  const SweepConfig config =
      folder.parse(sweep(entry("subgen", R"("delta_quantile": {"logspace": [0.01, 0.5, 10]},
                               "t": {"pow2": [0, 4]}, "s": {"pow2": [4, 9]})"),
                         R"("seeds": {"count": 15})"));
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = make_plan(config, {planned_dump("a", 2048, {0, 1, 2, 3, 4, 5, 6, 7}, 3)});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(plan.cells.size() == 10 * 5 * 6 * 15 * 8 * 3);
  CHECK(ids(plan).size() == plan.cells.size());
  MESSAGE(plan.cells.size(), " cells in ", seconds.count(), " s");
}

// A made-up algorithm that decides for what its flag says.
std::vector<AlgorithmDescription> scoped(ReplayScope scope) {
  std::vector<AlgorithmDescription> algorithms(1);
  algorithms[0].id = "together";
  algorithms[0].replay_scope = [scope](const Params&) { return scope; };
  // Layer 4 alone is too wide.
  algorithms[0].skip_reason = [](const Params&, const StreamShape& shape,
                                 Index) -> std::optional<std::string> {
    if (shape.d <= 8) return std::nullopt;
    return "too wide";
  };
  return algorithms;
}

TEST_CASE("what is decided for a layer has its selected heads in its key, for a model all layers") {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0, 2, 4}, 3);
  for (PlannedLayer& layer : dump.sequences[0].layers) layer.shape.d = 8;
  const auto plan_of = [&](ReplayScope scope, const std::vector<std::string>& only = {}) {
    static std::vector<std::vector<AlgorithmDescription>> tables;  // plans point into them
    tables.push_back(scoped(scope));
    const SweepConfig config =
        parse_sweep(sweep(entry("together", ""), R"("select": {"kv_heads": [0, 2]})"),
                    folder.file("quick.json"), {}, tables.back());
    return make_plan(config, {dump}, only);
  };
  const Plan layer = plan_of(ReplayScope::kLayer);
  const Plan model = plan_of(ReplayScope::kModel);
  REQUIRE(layer.cells.size() == 6);
  for (const PlannedCell& cell : layer.cells) {
    const json key = cell_key(layer, cell);
    CHECK(key.at("scope_layers") == json::array({layer.groups[cell.group].layer}));
    CHECK(key.at("scope_kv_heads") == json::array({0, 2}));
  }
  REQUIRE(model.cells.size() == layer.cells.size());
  for (const PlannedCell& cell : model.cells) {
    CHECK(cell_key(model, cell).at("scope_layers") == json::array({0, 2, 4}));
    CHECK(cell_key(model, cell).at("scope_kv_heads") == json::array({0, 2}));
  }
  CHECK(!cell_key(plan_of(ReplayScope::kHead), plan_of(ReplayScope::kHead).cells[0])
             .contains("scope_layers"));
  // --only leaves the scope, and so the cell, as it is.
  const Plan one = plan_of(ReplayScope::kLayer, {"*/*/*/2/0"});
  REQUIRE(one.cells.size() == 1);
  CHECK(one.cells[0].scope->kv_heads == std::vector<int>{0, 2});
  CHECK(one.cells[0].id == layer.cells[2].id);
  // Where one layer cannot run, the model cannot; other layers can.
  dump.sequences[0].layers[2].shape.d = 16;
  const auto skipped = [](const Plan& plan) {
    std::vector<bool> out;
    for (const PlannedCell& cell : plan.cells) out.push_back(cell.skip_reason.has_value());
    return out;
  };
  CHECK(skipped(plan_of(ReplayScope::kLayer)) ==
        std::vector<bool>{false, false, false, false, true, true});
  CHECK(skipped(plan_of(ReplayScope::kModel)) == std::vector<bool>(6, true));
}

TEST_CASE("a sequence whose name cannot be written as JSON is a fault") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(sweep(entry("exact", "")));
  PlannedDump dump = planned_dump("a", 100, {0}, 1);
  dump.sequences[0].name = "\xff";
  const auto messages = folder.messages([&] { make_plan(config, {dump}); });
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].find("has a name that is not UTF-8") != std::string::npos);
}

}  // namespace plan_test
}  // namespace kvbench::test
