#include "sweep/plan_document.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "sweep/cell_identity.hpp"
#include "sweep/make_plan.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace plan_document_test {

using nlohmann::json;

// Two dumps, RoPE data, a window, a stored prompt, skips, axes, seeds, where, label.
Plan rich_plan(const SweepFolder& folder, const std::vector<std::string>& only = {}) {
  PlannedDump a = planned_dump("a", 100, {0, 4}, 2);
  auto rope = std::make_shared<Rope>();
  rope->inv_freq = {1.0, 0.1, 1.0 / 3.0};
  rope->interleaved = true;
  for (PlannedLayer& layer : a.sequences[0].layers) layer.shape.rope = rope;
  a.sequences[0].layers[0].shape.wo_v_l1 = true;
  a.sequences[0].layers[1].shape.window = 17;
  a.sequences[0].layers[1].shape.softcap = 30.5;
  a.sequences[0].prompt_tokens = 60;
  const SweepConfig config =
      folder.parse(sweep(entry("window", R"("budget": [0.0001, 16])") + ", " +
                             R"({"algorithm": "uniform", "params": {"T": [1, 2]}, "label": "u",
                    "where": {"layers": [4]}})",
                         R"("seeds": [7, 8], "output": {"rows": true},
               "replay": {"prompt_tokens": 0.5}, "evaluate": {"rows": {"every": 3}})"),
                   {R"(/dumps=["a.h5", "b.h5"])"});
  return make_plan(config, {a, planned_dump("b", 64, {4}, 1, 40)}, only, "cpu");
}

json written_and_read(const Plan& plan) { return json::parse(plan_document(plan).dump()); }

TEST_CASE("a plan is made again from its document, cell by cell, without the dumps") {
  const SweepFolder folder;
  for (const auto& only : {std::vector<std::string>{}, {"uniform/*/*/*/*", "window/*/*/0/1"}}) {
    const Plan plan = rich_plan(folder, only);
    const json document = written_and_read(plan);
    for (const char* dump : {"a.h5", "b.h5"}) std::filesystem::remove(folder.file(dump));
    const Plan again = plan_from_document(document, plan.hash, "j", made_up_algorithms());
    CHECK(again.hash == plan.hash);
    CHECK(again.name == plan.name);
    CHECK(again.config == plan.config);
    CHECK(again.keep_rows == plan.keep_rows);
    REQUIRE(again.cells.size() == plan.cells.size());
    for (std::size_t c = 0; c < plan.cells.size(); ++c) {
      CHECK(again.cells[c].id == plan.cells[c].id);
      CHECK(again.cells[c].label == plan.cells[c].label);
      CHECK(again.cells[c].skip_reason == plan.cells[c].skip_reason);
      CHECK(cell_key(again, again.cells[c]) == cell_key(plan, plan.cells[c]));
    }
    REQUIRE(again.groups.size() == plan.groups.size());
    for (std::size_t g = 0; g < plan.groups.size(); ++g) {
      CHECK(again.groups[g].rows == plan.groups[g].rows);
      CHECK(again.groups[g].shape.window == plan.groups[g].shape.window);
      CHECK(again.groups[g].shape.softcap == plan.groups[g].shape.softcap);
      CHECK(again.groups[g].shape.wo_v_l1 == plan.groups[g].shape.wo_v_l1);
      CHECK((again.groups[g].shape.rope == nullptr) == (plan.groups[g].shape.rope == nullptr));
    }
    CHECK(again.groups[0].shape.rope->inv_freq == plan.groups[0].shape.rope->inv_freq);
    CHECK(plan_document(again) == plan_document(plan));
    for (const char* dump : {"a.h5", "b.h5"}) std::ofstream(folder.file(dump)) << dump;
  }
}

TEST_CASE("a document that makes other cells, or none, is refused") {
  const SweepFolder folder;
  const Plan plan = rich_plan(folder);
  const auto refused = [&](const json& document, const std::string& hash, const char* words) {
    CHECK_THROWS_WITH_AS(plan_from_document(document, hash, "j", made_up_algorithms()),
                         doctest::Contains(words), InputError);
  };
  const json good = written_and_read(plan);
  refused(good, "0123", "different cells");
  for (const char* key : {"config", "dumps", "only", "device"}) {
    json without = good;
    without.erase(key);
    refused(without, plan.hash, key);
  }
  json other = good;
  other["dumps"][0]["fingerprint"] = "f";
  refused(other, plan.hash, "different cells");
  other = good;
  other["dumps"][0]["sequences"][0]["layers"][0]["rope"] = 9;
  refused(other, plan.hash, "RoPE");
  other = good;
  other["config"]["algorithms"][0]["algorithm"] = "gone";
  refused(other, plan.hash, "/algorithms/0/algorithm");
}

}  // namespace plan_document_test
}  // namespace kvbench::test
