#include "run/complete_heads.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "results/made_results.hpp"
#include "results/record.hpp"

namespace kvbench::test {
namespace complete_heads_test {

// Every cell that is not missing has an error of its own: its place in the plan, from 1.
class MadeRecords : public CellRecords {
 public:
  MadeRecords(const Plan& plan, std::set<std::size_t> missing)
      : plan_(plan), missing_(std::move(missing)) {}

  CellState state(std::size_t cell) const override {
    if (missing_.count(cell) != 0) return CellState::kMissing;
    return plan_.cells[cell].skip_reason ? CellState::kSkipped : CellState::kOk;
  }
  std::size_t count(CellState) const override { return 0; }
  StoredRecord stored(std::size_t cell) const override {
    REQUIRE(missing_.count(cell) == 0);
    const PlannedCell& planned = plan_.cells[cell];
    if (planned.skip_reason) return {skipped_record(plan_, planned, ""), ""};
    return {cell_record(plan_, planned, made_result(static_cast<double>(cell + 1)), ""), ""};
  }
  CellState layer_state(std::size_t) const override { return CellState::kMissing; }
  std::size_t count_layers(CellState) const override { return 0; }
  StoredRecord stored_layer(std::size_t) const override { return {}; }
  const std::vector<Json>& provenance() const override { return provenance_; }

 private:
  const Plan& plan_;
  std::set<std::size_t> missing_;
  std::vector<Json> provenance_;
};

// The mean error of `window` with 16 tokens over all layers.
double window_error(const ComparedSettings& compared) {
  for (const SettingMeans& setting : compared.settings) {
    if (Json::parse(setting.params).value("budget", 0.0) == 16.0) return setting.l2.mean.value();
  }
  FAIL("no window in the summary");
  return 0.0;
}

// 2 layers x 2 KV heads x 5 cells: window (skipped), window, uniform with three seeds.
TEST_CASE("a run that is done is complete, skipped cells and all") {
  const SweepFolder folder;
  const Plan plan = made_plan(folder);
  REQUIRE(plan.cells.size() == 20);
  const CompleteHeads heads = complete_heads(plan, MadeRecords(plan, {}));
  CHECK(heads.complete == 4);
  CHECK(heads.all == 4);
  CHECK(window_error(heads.settings) == doctest::Approx((2 + 7 + 12 + 17) / 4.0));
}

TEST_CASE("a head that lacks one cell is left out with all of its cells") {
  const SweepFolder folder;
  const Plan plan = made_plan(folder);
  // The last seed of head 1 of layer 0.
  const CompleteHeads heads = complete_heads(plan, MadeRecords(plan, {9}));
  CHECK(heads.complete == 3);
  CHECK(heads.all == 4);
  CHECK(window_error(heads.settings) == doctest::Approx((2 + 12 + 17) / 3.0));
}

TEST_CASE("where every head lacks a cell there is nothing to compare") {
  const SweepFolder folder;
  const Plan plan = made_plan(folder);
  const CompleteHeads heads = complete_heads(plan, MadeRecords(plan, {0, 6, 12, 18}));
  CHECK(heads.complete == 0);
  CHECK(heads.all == 4);
  CHECK(heads.settings.settings.empty());
}

}  // namespace complete_heads_test
}  // namespace kvbench::test
