// Which records of whole layers a plan has.
#include "sweep/layer_records.hpp"

#include <doctest/doctest.h>

#include <set>

#include "sweep/cell_identity.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/plan_document.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace layer_records_test {

// Layers 0 and 4 of two KV heads; layer 0 has an output projection.
std::vector<PlannedDump> dumps() {
  PlannedDump dump = planned_dump("a", 100, {0, 4}, 2);
  dump.sequences[0].layers[0].hidden = 192;
  dump.sequences[0].layers[0].residual_rows = 30;
  return {dump};
}

const std::string kTwo =
    entry("window", R"("budget": [0.0001, 16])") + ", " + entry("uniform", R"("T": 1)");

Plan planned(const SweepFolder& folder, const std::string& algorithms, const std::string& more = "",
             const std::vector<std::string>& only = {}) {
  return make_plan(folder.parse(sweep(algorithms, more)), dumps(), only);
}

TEST_CASE("a layer with an output projection has a record of each setting and seed") {
  const SweepFolder folder;
  const Plan plan = planned(folder, kTwo, R"("seeds": [7, 8])");
  REQUIRE(plan.layer_records.size() == 4);  // two windows, two seeds
  CHECK(plan.groups[0].layer_records == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(plan.groups[1].layer_records.empty());
  CHECK(plan.groups[0].hidden == 192);
  CHECK(!plan.groups[0].has_residual(69));
  CHECK(plan.groups[0].has_residual(70));
  std::set<std::string> ids;
  for (const PlannedCell& cell : plan.cells) ids.insert(cell.id);
  for (const PlannedLayerRecord& record : plan.layer_records) {
    CHECK(ids.insert(record.id).second);
    REQUIRE(record.cells.size() == 2);
    const PlannedCell& first = plan.cells[record.cells[0]];
    const PlannedCell& second = plan.cells[record.cells[1]];
    CHECK(first.kv_head == 0);
    CHECK(second.kv_head == 1);
    CHECK(first.params == second.params);
    CHECK(first.seed == second.seed);
    nlohmann::json key = cell_key(plan, second);
    key.erase("kv_head");
    CHECK(layer_record_key(plan, record) == key);
  }
  CHECK(layer_skip_reason(plan, plan.layer_records[0]).value() ==
        "KV head 0: a budget of 0 tokens");
  CHECK(!layer_skip_reason(plan, plan.layer_records[1]));
  CHECK(layer_record_path(plan, plan.layer_records[1]) == "window/window/0/0");
}

TEST_CASE("a setting without all KV heads of the layer has no record") {
  const SweepFolder folder;
  CHECK(planned(folder, kTwo, R"("select": {"kv_heads": [1]})").layer_records.empty());
  const std::string where =
      R"({"algorithm": "window", "params": {"budget": 16}, "where": {"kv_heads": [0]}})";
  CHECK(planned(folder, where).layer_records.empty());
  // Two entries of one setting make a whole layer together.
  const std::string other =
      R"({"algorithm": "window", "params": {"budget": 16}, "where": {"kv_heads": [1]}})";
  CHECK(planned(folder, where + ", " + other).layer_records.size() == 1);
  const Plan all = planned(folder, kTwo);
  CHECK(planned(folder, kTwo, "", {all.cells[0].id}).layer_records.empty());
  CHECK(planned(folder, kTwo, "", {"window/*/*/0/*"}).layer_records.size() == 2);
}

TEST_CASE("cells and the plan's hash are those of a dump without a projection") {
  const SweepFolder folder;
  const Plan with = planned(folder, kTwo);
  const Plan without = make_plan(folder.parse(sweep(kTwo)), {planned_dump("a", 100, {0, 4}, 2)});
  CHECK(without.layer_records.empty());
  CHECK(with.hash == without.hash);
}

TEST_CASE("a record's id is that of its canonical key, whatever else the sweep has") {
  const SweepFolder folder;
  const Plan alone = planned(folder, entry("window", R"("budget": 16)"));
  const Plan beside = planned(folder, kTwo);
  CHECK(alone.layer_records.at(0).id == beside.layer_records.at(1).id);
}

TEST_CASE("without a projection a layer has records only if a scored row asks for evidence") {
  const SweepFolder folder;
  std::vector<PlannedDump> given = dumps();
  given[0].sequences[0].evidence = std::make_shared<const Evidence>(Evidence{{{3, 5}}, {70, 99}});
  const auto records_with = [&](const std::string& rows) {
    const std::string evaluate = R"("evaluate": {"rows": )" + rows + "}";
    const Plan plan = make_plan(folder.parse(sweep(kTwo, evaluate)), given);
    return std::make_pair(plan.groups[0].layer_records.size(), plan.groups[1].layer_records.size());
  };
  CHECK(records_with("[60, 70]") == std::make_pair(std::size_t{3}, std::size_t{3}));
  CHECK(records_with("[60, 71]") == std::make_pair(std::size_t{3}, std::size_t{0}));
}

TEST_CASE("a plan that is made again from its document has the same records and evidence") {
  const SweepFolder folder;
  std::vector<PlannedDump> given = dumps();
  given[0].sequences[0].evidence =
      std::make_shared<const Evidence>(Evidence{{{3, 5}, {9, 9}}, {97, 99}});
  const Plan plan = make_plan(folder.parse(sweep(kTwo)), given);
  CHECK(plan.groups[1].layer_records.size() == 3);  // evidence alone, without a projection
  const Plan again =
      plan_from_document(plan_document(plan), plan.hash, "here", made_up_algorithms());
  REQUIRE(again.layer_records.size() == plan.layer_records.size());
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    CHECK(again.layer_records[l].id == plan.layer_records[l].id);
    CHECK(again.layer_records[l].cells == plan.layer_records[l].cells);
  }
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    CHECK(again.groups[g].hidden == plan.groups[g].hidden);
    CHECK(again.groups[g].first_residual == plan.groups[g].first_residual);
    CHECK(*again.groups[g].evidence == *plan.groups[g].evidence);
  }
}

}  // namespace layer_records_test
}  // namespace kvbench::test
