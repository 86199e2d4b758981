// "then" of an entry: two methods as one, its parameters, ids and the plan's document.
#include <doctest/doctest.h>

#include <set>

#include "algorithms/composition.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/plan_document.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep_folder.hpp"
#include "system/hash.hpp"

namespace kvbench::test {
namespace then_test {

std::string pair(const std::string& first, const std::string& then) {
  return R"({"algorithm": "snapkv", "params": {)" + first +
         R"(}, "then": {"algorithm": "quest", "params": {)" + then + "}}}";
}

SweepConfig parse(const SweepFolder& folder, const std::string& entries) {
  return parse_sweep(sweep(entries), folder.file("then.json"), {}, all_algorithms());
}

Plan plan_of(const std::string& entries) {
  const SweepFolder folder;
  return make_plan(parse(folder, entries), {planned_dump("a", 400, {0}, 1)});
}

TEST_CASE("axes of both cross; ids are of both methods, and those of either alone stay") {
  const std::string alone =
      entry("snapkv", R"("budget": [48, 64])") + ", " + entry("quest", R"("budget": 32)");
  const Plan plain = plan_of(alone);
  const Plan more =
      plan_of(alone + ", " + pair(R"("budget": [48, 64])", R"("budget": {"pow2": [3, 5]})"));
  REQUIRE(plain.cells.size() == 3);
  REQUIRE(more.cells.size() == 3 + 2 * 3);
  std::set<std::string> ids;
  for (std::size_t c = 0; c < more.cells.size(); ++c) {
    const PlannedCell cell = more.cells[c];
    CHECK_FALSE(cell.skip_reason);
    ids.insert(cell.id);
    CHECK(cell.id == hash128_hex(cell_key(more, cell).dump()));
    if (c < 3) CHECK(cell.id == plain.cells[c].id);
  }
  CHECK(ids.size() == more.cells.size());
  const PlannedCell last = more.cells[8];
  CHECK(*last.label == "snapkv+quest");
  CHECK(cell_path(more, last) == "snapkv+quest/snapkv+quest/0/0/0");
  const nlohmann::json key = cell_key(more, last);
  CHECK(key["algorithm"] == "snapkv+quest");
  CHECK(key["params"]["budget"] == 64);
  CHECK(key["params"]["then.budget"] == 32);
  CHECK(key["params"]["then.page"] == 16);
}

TEST_CASE("a resolved sweep reads again, and a plan is made again from its document") {
  const Plan plan = plan_of(pair(R"("budget": 48, "pages": 4)", R"("budget": [8, 16])") + ", " +
                            R"({"algorithm": "snapkv", "params": {"budget": 48}, "label": "two",
                                "then": {"algorithm": "oracle_topk", "params": {"budget": 0.5}}})");
  const nlohmann::json& entry = plan.config.at("algorithms").at(0);
  CHECK(entry.at("algorithm") == "snapkv");
  CHECK(entry.at("params").at("pages") == 4);
  CHECK(entry.at("then").at("algorithm") == "quest");
  CHECK(entry.at("then").at("params").at("budget") == nlohmann::json{8, 16});
  const SweepConfig again = resolved_sweep(plan.config, "again", all_algorithms());
  CHECK(again.resolved == plan.config);
  const nlohmann::json document = nlohmann::json::parse(plan_document(plan).dump());
  const Plan copy = plan_from_document(document, plan.hash, "j", all_algorithms());
  CHECK(copy.hash == plan.hash);
  CHECK(*copy.cells[2].label == "two");
  CHECK(copy.cells[2].algorithm->id == "snapkv+oracle_topk");
}

TEST_CASE("equal cells are found by both methods' parameters") {
  const SweepFolder folder;
  const std::string first = pair(R"("budget": 48)", R"("budget": [8, 16])");
  CHECK_NOTHROW(parse(folder, first + ", " + pair(R"("budget": 48)", R"("budget": 32)")));
  CHECK_NOTHROW(parse(folder, first + ", " + entry("snapkv", R"("budget": 48)")));
  CHECK_THROWS_WITH_AS(parse(folder, first + ", " + pair(R"("budget": 48)", R"("budget": 16)")),
                       doctest::Contains("/algorithms/1: describes the same cells"), InputError);
}

TEST_CASE("an entry's label, storage and seeds are those of any other") {
  const SweepFolder folder;
  const SweepConfig config = parse_sweep(
      sweep(R"({"algorithm": "snapkv", "params": {"budget": 48}, "storage": ["float", "q8_0"],
                "then": {"algorithm": "magicpig"}})",
            R"("seeds": [3, 4])"),
      folder.file("then.json"), {}, all_algorithms());
  const Plan plan = make_plan(config, {planned_dump("a", 400, {0}, 1)});
  REQUIRE(plan.cells.size() == 4);
  CHECK(plan.cells[0].seed == 3U);
  CHECK(*plan.cells[3].label == "snapkv+magicpig | K q8_0 V q8_0");
  CHECK_FALSE(plan.cells[3].skip_reason);
}

}  // namespace then_test
}  // namespace kvbench::test
