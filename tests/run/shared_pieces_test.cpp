#include "run/shared_pieces.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace shared_pieces_test {

// Every seed asked for itself.
class EveryCell {
 public:
  EveryCell(const Plan& plan, const WorkGroup& group, const CellRange& cells) {
    const StreamShape& shape = group.shape;
    const double of_tokens = 8.0 * (shape.heads_per_kv + 2.0) * static_cast<double>(shape.tokens);
    for (const std::size_t c : cells) {
      const PlannedCell cell = plan.cells[c];
      if (cell.scope) {
        bytes_[cell.algorithm->model_work(*cell.params, cell.seed_or_zero()).key()] = 0.0;
        continue;
      }
      for (const SharedWork& work :
           cell.algorithm->shared_work(*cell.params, shape, group.prompt, cell.seed_or_zero())) {
        bytes_[work.key()] = work.bytes() + of_tokens;
      }
    }
  }

  double count() const { return static_cast<double>(bytes_.size()); }
  double bytes() const {
    double sum = 0.0;
    for (const auto& [key, bytes] : bytes_) sum += bytes;
    return sum;
  }

 private:
  std::map<WorkKey, double> bytes_;
};

TEST_CASE("pieces are counted by setting as they are seed by seed") {
  const SweepFolder folder;
  std::set<double> counts;
  for (const char* algorithms :
       {R"({"algorithm": "window", "params": {"budget": [8, 16]}})",
        R"({"algorithm": "snapkv", "params": {"budget": [8, 16]}})",
        R"({"algorithm": "keyformer", "params": {"budget": [8, 16, 32]}})",
        R"({"algorithm": "keyformer", "params": {"budget": [8, 16], "scope": ["layer", "model"]}})",
        R"({"algorithm": "compactor", "params": {"budget": [8, 16]}})",
        R"({"algorithm": "balancekv_prefill", "params": {"T": [1, 2]}})",
        R"({"algorithm": "cam", "params": {"budget": [8, 16]}},
           {"algorithm": "h2o", "params": {"budget": 8}},
           {"algorithm": "keyformer", "params": {"budget": 8}})"}) {
    CAPTURE(algorithms);
    const Plan plan = make_plan(parse_sweep(sweep(algorithms, R"("seeds": [3, 1, 4, 15, 9])"),
                                            folder.file("s.json"), {}, all_algorithms()),
                                {planned_dump("a", 128, {0, 1}, 2)});
    const WorkGroup& group = plan.groups[0];
    const CellRange cells = plan.cells.heads()[0].cells;
    SharedPieces pieces;
    plan.cells.for_each_setting(cells, [&](const PlannedCell& cell, std::size_t count) {
      pieces.add(plan, group, cell, count);
    });
    const EveryCell every(plan, group, cells);
    CHECK(pieces.count() == every.count());
    CHECK(pieces.bytes() == doctest::Approx(every.bytes()).epsilon(1e-12));
    counts.insert(pieces.count());
  }
  CHECK(counts.count(0.0) == 1);
  CHECK(counts.count(1.0) == 1);   // one for all seeds
  CHECK(*counts.rbegin() >= 5.0);  // one of each
}

TEST_CASE("where settings are left with different seeds, none is missed") {
  const SweepFolder folder;
  const auto planned = [&](const std::vector<std::string>& only) {
    return make_plan(
        parse_sweep(sweep(R"({"algorithm": "keyformer", "params": {"budget": [8, 16]}})",
                          R"("seeds": [3, 1, 4, 15])"),
                    folder.file("s.json"), {}, all_algorithms()),
        {planned_dump("a", 128, {0}, 1)}, only);
  };
  const Plan whole = planned({});
  REQUIRE(whole.cells.size() == 8);
  for (unsigned kept = 1; kept < 256; ++kept) {
    std::vector<std::string> only;
    for (std::size_t c = 0; c < 8; ++c) {
      if ((kept >> c & 1U) != 0) only.push_back(whole.cells[c].id);
    }
    const Plan plan = planned(only);
    const WorkGroup& group = plan.groups[0];
    SharedPieces pieces;
    plan.cells.for_each_setting(group.cells, [&](const PlannedCell& cell, std::size_t count) {
      pieces.add(plan, group, cell, count);
    });
    const EveryCell every(plan, group, group.cells);
    CHECK(pieces.bytes() >= every.bytes());
    CHECK(pieces.count() <= every.count() + 2.0);
  }
}

}  // namespace shared_pieces_test
}  // namespace kvbench::test
