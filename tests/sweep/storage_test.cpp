// `storage` of a sweep: the grammar, ids, labels and skips.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "algorithms/registry.hpp"
#include "support/given.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/storage_axis.hpp"
#include "sweep/stored_budget.hpp"
#include "sweep_folder.hpp"
#include "system/hash.hpp"

namespace kvbench::test {
namespace storage_test {

using nlohmann::json;

std::vector<std::string> texts(const Storages& storages) {
  std::vector<std::string> out;
  for (const auto& each : storages) out.push_back(each ? storage_text(*each) : "float");
  return out;
}

Storages read(const std::string& text) {
  ErrorList errors("f");
  auto storages = read_storages(json::parse(text), "/storage", std::nullopt, errors);
  errors.throw_if_any();
  return storages.value();
}

void refused(const std::string& text, const std::string& words) {
  CHECK_THROWS_WITH_AS(read(text), doctest::Contains(words.c_str()), InputError);
}

TEST_CASE("a storage is float, a codec for both tensors, or one for each") {
  CHECK(texts(read(R"("float")")) == std::vector<std::string>{"float"});
  CHECK(texts(read(R"("q8_0")")) == std::vector<std::string>{"K q8_0 V q8_0"});
  CHECK(texts(read(R"([{"keys": "q8_0"}, {"values": {"codec": "q4_0"}}, "float"])")) ==
        std::vector<std::string>{"K q8_0 V float", "K float V q4_0", "float"});
  CHECK(texts(read(R"([{"keys": {"codec": "token", "bits": 2}, "values": "token"}])")) ==
        std::vector<std::string>{"K token bits=2 V token"});
}

TEST_CASE("axes of a codec's parameters cross, keys slowest") {
  CHECK(texts(read(R"({"keys": {"codec": "token", "bits": [2, 4]},
                       "values": {"codec": "token", "bits": [3, 8]}})")) ==
        std::vector<std::string>{"K token bits=2 V token bits=3", "K token bits=2 V token bits=8",
                                 "K token V token bits=3", "K token V token bits=8"});
}

TEST_CASE("a storage read from its own JSON is the same") {
  for (const auto& storage : read(R"(["q8_0", {"keys": "qjl"}, {"values": "kivi"}, "float"])")) {
    const Storages again = read(json::array({storage_json(storage.get())}).dump());
    REQUIRE(again.size() == 1);
    CHECK(storage_json(again.front().get()) == storage_json(storage.get()));
  }
}

SweepConfig parse(const SweepFolder& folder, const std::string& text) {
  return parse_sweep(text, folder.file("storage.json"), {}, all_algorithms());
}

Plan plan_of(const std::string& entries, const std::string& more) {
  const SweepFolder folder;
  const SweepConfig config = parse(folder, sweep(entries, more));
  return make_plan(config, {planned_dump("a", 100, {0}, 1)});
}

TEST_CASE("cells cross with storages; float cells keep their ids, and keys hash to ids") {
  const std::string entries = entry("exact", "") + ", " + entry("window", R"("budget": [4, 8])");
  const Plan plain = plan_of(entries, R"("seeds": [1, 2])");
  const Plan stored =
      plan_of(entries, R"("seeds": [1, 2], "storage": ["float", "q8_0", {"keys": "turboquant"}])");
  REQUIRE(plain.cells.size() == 3);
  REQUIRE(stored.cells.size() == 3 * (1 + 1 + 2));
  std::set<std::string> ids;
  std::set<std::string> float_ids;
  for (const PlannedCell& cell : stored.cells) {
    CHECK(cell.id == hash128_hex(cell_key(stored, cell).dump()));
    CHECK(cell_key(stored, cell).contains("storage") == (cell.storage != nullptr));
    ids.insert(cell.id);
    if (!cell.storage) float_ids.insert(cell.id);
  }
  CHECK(ids.size() == stored.cells.size());
  for (const PlannedCell& cell : plain.cells) CHECK(float_ids.count(cell.id) == 1);
  CHECK(*stored.cells[1].label == "exact | K q8_0 V q8_0");
  CHECK_FALSE(stored.cells[1].seed);
  CHECK(*stored.cells[2].label == "exact | K turboquant V float");
  CHECK(stored.cells[2].seed == 1U);
  CHECK(stored.cells[3].seed == 2U);
}

TEST_CASE("an entry's storage takes the place of the file's, and the resolved sweep reads again") {
  const Plan plan =
      plan_of(entry("exact", "") + R"(, {"algorithm": "window", "params": {"budget": 4},
                             "storage": {"values": {"codec": "kivi", "bits": [2, 4]}}})",
              R"("storage": "q4_0")");
  std::vector<std::string> labels;
  for (const PlannedCell& cell : plan.cells) labels.push_back(*cell.label);
  CHECK(labels == std::vector<std::string>{"exact | K q4_0 V q4_0", "window | K float V kivi",
                                           "window | K float V kivi bits=4"});
  const SweepConfig again = resolved_sweep(plan.config, "again", all_algorithms());
  CHECK(again.resolved == plan.config);
  const Plan same = make_plan(again, plan.dumps);
  CHECK(same.hash == plan.hash);
}

TEST_CASE("equal cells of two entries are found by their storage too") {
  const SweepFolder folder;
  const auto with = [&](const std::string& second) {
    return parse(folder, sweep(R"({"algorithm": "exact", "storage": ["float", "q8_0"]},
                                  {"algorithm": "exact", "storage": )" +
                               second + "}"));
  };
  CHECK_NOTHROW(with(R"(["q4_0"])"));
  CHECK_THROWS_WITH_AS(with(R"(["q4_0", "q8_0"])"), doctest::Contains("storage K q8_0 V q8_0"),
                       InputError);
}

TEST_CASE("a cell that cannot be stored so is skipped with the reason") {
  const auto reason_of = [](const std::string& algorithm, const std::string& params,
                            const std::string& storage) {
    const Plan plan = plan_of(entry(algorithm, params), "\"storage\": " + storage);
    return plan.cells.front().skip_reason.value_or("");
  };
  CHECK(reason_of("exact", "", R"("kivi")") == "");
  CHECK(reason_of("snapkv", R"("budget": 40)", R"("kivi")") == "");
  CHECK(reason_of("h2o", R"("budget": 40)", R"({"values": "kivi"})") == "");
  CHECK(
      reason_of("h2o", R"("budget": 40)", R"("kivi")") ==
      "kivi writes keys of 32 tokens together, and h2o drops tokens from among them; name a codec "
      "that writes tokens singly, such as token");
  CHECK(reason_of("h2o", R"("budget": 40)", R"("token")") == "");
  // A mask of the prompt leaves nothing out of decode rows.
  CHECK(
      reason_of("flexprefill", "", R"("bf16", "evaluate": {"rows": {"prompt": "all"}})") ==
      "flexprefill leaves tokens out in rows of the prompt alone, before K bf16 V bf16 has written "
      "the cache; give it \"storage\": \"float\"");
  CHECK(reason_of("performer", "", R"("q8_0")").find("random features") != std::string::npos);
  const std::string channels = R"({"values": {"codec": "int", "per": "channel", "group": 8}})";
  CHECK(reason_of("snapkv", R"("budget": 40)", channels) == "");
  CHECK(reason_of("kcenter", R"("budget": 40, "value": "own")", channels) == "");
  CHECK(reason_of("kcenter", R"("budget": 40, "value": "mean")", channels) ==
        "int writes values of 8 tokens together, and kcenter makes values of its own; name a codec "
        "that writes tokens singly, such as token");
  CHECK(reason_of("kcenter", R"("budget": 40, "value": "mean")", R"("token")") == "");
  CHECK(reason_of("kcenter", R"("budget": 40, "value": "mean")", R"({"keys": "kivi"})") == "");
  // On a sliding layer what leaves the window is dropped, whatever the method keeps.
  const auto on_sliding_layer = [](const std::string& algorithm, const Given& given) {
    StreamShape shape;
    shape.tokens = 100;
    shape.d = shape.dv = 64;
    shape.window = 40;
    const AlgorithmDescription& method = algorithm_named(algorithm);
    return reason_to_skip(*read(R"("kivi")").front(), method, params_for(method, given), shape, 50);
  };
  CHECK(on_sliding_layer("exact", {}));
  CHECK(on_sliding_layer("loki", {{"budget", count_of(8)}}));
  CHECK(on_sliding_layer("oracle_topk", {{"budget", count_of(8)}}));
  CHECK(reason_of("streaming_llm", R"("budget": 40, "positions": "cache")", R"("q8_0")") != "");
}

TEST_CASE("where a layer slides, no method goes with a codec of groups") {
  StreamShape shape;
  shape.tokens = 100;
  shape.d = shape.dv = 32;
  const Storage storage = *read(R"("kivi")").front();
  Params params;
  params.set("budget", std::int64_t{8});
  for (const char* id : {"exact", "oracle_topk"}) {
    const AlgorithmDescription& algorithm = *find_algorithm(id);
    shape.window = 0;
    CHECK(!reason_to_skip(storage, algorithm, params, shape, 50));
    shape.window = 100;  // no row loses a token
    CHECK(!reason_to_skip(storage, algorithm, params, shape, 50));
    shape.window = 40;
    CHECK(reason_to_skip(storage, algorithm, params, shape, 50)
              .value_or("")
              .find("the end of the layer's window drops tokens") != std::string::npos);
  }
}

TEST_CASE("a memory is solved with the bytes of the storage") {
  const auto tokens = [](const std::string& storage) {
    const Plan plan =
        plan_of(entry("snapkv", R"("budget": {"memory": 0.6}, "window": 4)"), storage);
    const PlannedCell& cell = plan.cells.front();
    REQUIRE_MESSAGE(!cell.skip_reason, *cell.skip_reason);
    return std::get<MemoryBudget>(cell.params->at("budget")).solved;
  };
  // 100 tokens of d = dv, half of them decoded: 0.6 of their 16-bit bytes hold 60 unquantised
  // tokens, of which 10 are the prompt's; with 8.5 bits a number there is room for all.
  const Index as_they_came = tokens("");
  const Index stored = tokens(R"("storage": "q8_0")");
  CHECK(as_they_came == 10);
  CHECK(stored >= 50);
}

TEST_CASE("a memory is solved for the largest budget, where more tokens take fewer bytes too") {
  // The prompt has 96 of 100 tokens.
  constexpr Index kPrompt = 96;
  constexpr Index kDecoded = 4;
  StreamShape shape;
  shape.tokens = kPrompt + kDecoded;
  shape.d = shape.dv = 64;
  const AlgorithmDescription& algorithm = algorithm_named("knorm");
  const auto storage = read(R"({"keys": {"codec": "kivi", "bits": 2, "residual": 32},
                                "values": {"codec": "kivi", "bits": 2, "residual": 32}})")
                           .front();
  const StorageLayout layout(storage.get(), shape, kPrompt, 2);
  const auto fraction = [&](Index budget) {
    const KeptCounts kept{.keys = budget + kDecoded, .values = budget + kDecoded};
    const KeptCounts of_prompt{.keys = budget, .values = budget};
    return static_cast<double>(layout.most_bytes(kept, of_prompt)) / (100.0 * 256.0);
  };
  bool falls = false;
  for (Index budget = 2; budget < kPrompt; ++budget) {
    falls = falls || fraction(budget) < fraction(budget - 1);
  }
  CHECK(falls);
  Index not_first = 0;  // budgets above one that is too large
  for (double wanted = 0.1; wanted < 0.5; wanted += 0.01) {
    CAPTURE(wanted);
    Index largest = 0;
    Index first = kPrompt;  // that does not fit
    for (Index budget = 1; budget < kPrompt; ++budget) {
      if (fraction(budget) <= wanted) largest = budget;
      if (fraction(budget) > wanted) first = std::min(first, budget);
    }
    Params params;
    params.set("budget", MemoryBudget{wanted});
    const auto solved = solve_stored_memory(algorithm, params, storage.get(), shape, kPrompt, 2);
    const Params* found = std::get_if<Params>(&solved);
    // 1 + 4 tokens take 5 of 100 unquantised, 0.05: every memory has a budget.
    REQUIRE_MESSAGE(found != nullptr, std::get<std::string>(solved));
    const Index tokens = std::get<MemoryBudget>(found->at("budget")).solved;
    if (tokens >= kPrompt) continue;  // the whole prompt
    CHECK(tokens == largest);
    not_first += tokens > first ? 1 : 0;
  }
  CHECK(not_first > 2);
  // The message for a memory below that of every budget names the least one, which is reached.
  Params nothing;
  nothing.set("budget", MemoryBudget{1e-6});
  const auto refused = solve_stored_memory(algorithm, nothing, storage.get(), shape, kPrompt, 2);
  REQUIRE(std::holds_alternative<std::string>(refused));
  const std::string& why = std::get<std::string>(refused);
  const std::string before = "keeps at least ";
  REQUIRE(why.find(before) != std::string::npos);
  const double smallest = std::stod(why.substr(why.find(before) + before.size()));
  for (const double part : {1.0, 0.998}) {
    Params asked;
    asked.set("budget", MemoryBudget{smallest * part});
    const auto found = solve_stored_memory(algorithm, asked, storage.get(), shape, kPrompt, 2);
    CHECK(std::holds_alternative<Params>(found) == (part == 1.0));
  }
}

TEST_CASE("later parameters of a codec are in its key only if they are given") {
  const auto key = [](const std::string& text) {
    return storage_json(read(text).front().get())["keys"];
  };
  CHECK(key(R"({"keys": "q8_0"})") == json{{"codec", "q8_0"}, {"rotate", "none"}});
  CHECK(key(R"({"keys": {"codec": "q8_0", "centre": "none", "rope": "after"}})") ==
        json{{"codec", "q8_0"}, {"rotate", "none"}});
  CHECK(key(R"({"keys": {"codec": "q8_0", "centre": "mean", "rope": "before"}})") ==
        json{{"codec", "q8_0"}, {"rotate", "none"}, {"centre", "mean"}, {"rope", "before"}});
  CHECK_FALSE(key(R"({"keys": "turboquant"})").contains("scale"));
}

constexpr const char* kByLayer = R"({"by_layer": [
    {"layers": [3, 0, 1], "storage": {"keys": {"codec": "turboquant", "bits": 4}}},
    {"storage": "q4_0"}, {"layers": [2], "storage": "float"}]})";

TEST_CASE("a storage by layer is one setting, with its layers' codecs") {
  CHECK(texts(read(kByLayer)) ==
        std::vector<std::string>{"layers 0-1,3 K turboquant bits=4 V float, "
                                 "layers 2 K float V float, others K q4_0 V q4_0"});
  const auto made = read(kByLayer).front();
  CHECK(*read(json::array({storage_json(made.get())}).dump()).front() == *made);
  const auto text_on = [&](int layer) {
    Storage of_layer = *at_layer(made, layer);
    of_layer.by_layer = nullptr;
    return storage_text(of_layer);
  };
  CHECK(text_on(3) == "K turboquant bits=4 V float");
  CHECK(text_on(2) == "K float V float");
  CHECK(text_on(7) == "K q4_0 V q4_0");

  const SweepFolder folder;
  const SweepConfig config =
      parse(folder, sweep(entry("exact", "") + ", " + entry("window", R"("budget": 4)"),
                          std::string(R"("seeds": [1, 2], "storage": )") + kByLayer));
  const Plan plan = make_plan(config, {planned_dump("a", 100, {0, 2, 5}, 1)});
  REQUIRE(plan.cells.size() == 3 * 2 * 2);  // seeds everywhere: one layer draws
  for (const PlannedCell& cell : plan.cells) {
    CHECK(cell.label->starts_with(cell.algorithm->id + " | layers 0-1,3 K turboquant"));
    CHECK_FALSE(cell.skip_reason);
    const int layer = plan.groups[cell.group].layer;
    CHECK(cell.storage->keys.is_float() == (layer == 2));
    CHECK(cell.storage->values.is_float() == (layer != 5));
    CHECK(cell.id == hash128_hex(cell_key(plan, cell).dump()));
    CHECK(cell_key(plan, cell)["storage"] == storage_json(made.get()));
  }
  CHECK(make_plan(resolved_sweep(plan.config, "again", all_algorithms()), plan.dumps).hash ==
        plan.hash);
}

TEST_CASE("a layer that no element names is skipped, and faults of a storage by layer are named") {
  const Plan plan = plan_of(entry("exact", ""),
                            R"("storage": {"by_layer": [{"layers": [1], "storage": "q8_0"}]})");
  CHECK(plan.cells.front().skip_reason.value_or("") ==
        "by_layer of its storage has nothing for layer 0; add an element without layers");
}

}  // namespace storage_test
}  // namespace kvbench::test
