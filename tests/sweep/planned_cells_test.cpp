#include "sweep/planned_cells.hpp"

#include <doctest/doctest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace kvbench::test {
namespace planned_cells_test {

Key128 id_of(std::size_t cell) { return hash128(std::to_string(cell)); }

// Settings "a", seeded, and "b". Group 0: KV heads 0 (a, a, b) and 1 (b, b); group 2: head 1
// (a, a, b), group 5: head 1 (b).
PlannedCells made_cells() {
  PlannedCells cells;
  cells.set_seeds({7, 8});
  for (const char* label : {"a", "b"}) {
    PlannedSetting setting;
    setting.label = label;
    setting.is_seeded = std::string(label) == "a";
    cells.add_setting(setting);
  }
  const std::vector<std::tuple<std::size_t, int, std::size_t, std::size_t>> all = {
      {0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}, {0, 1, 1, 0}, {0, 1, 1, 0},
      {2, 1, 0, 0}, {2, 1, 0, 1}, {2, 1, 1, 0}, {5, 1, 1, 0}};
  for (const auto& [group, head, setting, seed] : all) {
    cells.add(group, head, setting, seed, id_of(cells.size()));
  }
  return cells;
}

TEST_CASE("a cell is what was added, by its index and in order") {
  const PlannedCells cells = made_cells();
  REQUIRE(cells.size() == 9);
  const std::string labels = "aabbbaabb";
  const std::vector<std::size_t> groups = {0, 0, 0, 0, 0, 2, 2, 2, 5};
  const std::vector<int> heads = {0, 0, 0, 1, 1, 1, 1, 1, 1};
  const std::vector<std::uint32_t> seeds = {7, 8, 0, 0, 0, 7, 8, 0, 0};
  std::size_t c = 0;
  for (const PlannedCell& cell : cells) {
    for (const PlannedCell& same : {cell, cells[c]}) {
      CHECK(same.index == c);
      CHECK(same.id == id_of(c));
      CHECK(*same.label == std::string(1, labels[c]));
      CHECK(same.group == groups[c]);
      CHECK(same.kv_head == heads[c]);
      CHECK(same.seed.has_value() == (labels[c] == 'a'));
      CHECK(same.seed_or_zero() == seeds[c]);
      CHECK(*cells.settings()[same.setting].label == *same.label);
    }
    ++c;
  }
  CHECK(c == cells.size());
  CHECK(PlannedCells().begin() == PlannedCells().end());
}

TEST_CASE("KV heads of two groups are two, and those of a range are found") {
  const PlannedCells cells = made_cells();
  REQUIRE(cells.heads().size() == 4);
  const auto count = [&](std::size_t first, std::size_t end) {
    return cells.heads(CellRange(first, end)).size();
  };
  CHECK(cells.heads(CellRange(5, 8)).front().group == 2);
  CHECK(cells.heads(CellRange(5, 8)).front().cells.size() == 3);
  CHECK(count(0, 9) == 4);
  CHECK(count(0, 5) == 2);
  CHECK(count(4, 6) == 2);
  CHECK(count(8, 9) == 1);
  CHECK(count(3, 3) == 0);
}

TEST_CASE("cells of one setting on one KV head come together, also where a range cuts them") {
  const PlannedCells cells = made_cells();
  using Parts = std::vector<std::pair<std::size_t, std::size_t>>;
  const auto parts = [&](std::size_t first, std::size_t end) {
    Parts out;
    cells.for_each_setting(CellRange(first, end), [&](const PlannedCell& cell, std::size_t size) {
      out.emplace_back(cell.index, size);
    });
    return out;
  };
  CHECK(parts(0, 9) == Parts{{0, 2}, {2, 1}, {3, 2}, {5, 2}, {7, 1}, {8, 1}});
  CHECK(parts(1, 4) == Parts{{1, 1}, {2, 1}, {3, 1}});
  CHECK(parts(6, 6).empty());
}

TEST_CASE("settings that are skipped do not run") {
  PlannedCells cells = made_cells();
  cells.setting(1).skip_reason = "no such layer";
  std::vector<std::size_t> first;
  cells.for_each_to_run(CellRange(0, 9), [&](const PlannedCell& cell, std::size_t count) {
    CHECK(count == 2);
    first.push_back(cell.index);
  });
  CHECK(first == std::vector<std::size_t>{0, 5});
}

TEST_CASE("the last setting and the last seed that a plan may have are kept") {
  PlannedCells cells;
  std::vector<std::uint32_t> seeds(PlannedCells::kMaxSeeds);
  seeds.back() = 4294967295;
  cells.set_seeds(std::move(seeds));
  PlannedSetting setting;
  setting.is_seeded = true;
  for (std::size_t i = 0; i < 3; ++i) cells.add_setting(setting);
  cells.add(0, 0, 2, PlannedCells::kMaxSeeds - 1, id_of(0));
  cells.add(0, 0, 1, 0, id_of(1));
  CHECK(cells[0].setting == 2);
  CHECK(cells[0].seed == 4294967295);
  CHECK(cells[1].setting == 1);
  CHECK(cells[1].seed == 0);
}

TEST_CASE("groups get the places that they are given") {
  PlannedCells cells = made_cells();
  cells.renumber_groups({0, 1, 1, 2, 2, 2});
  CHECK(cells[4].group == 0);
  CHECK(cells[5].group == 1);
  CHECK(cells[8].group == 2);
}

}  // namespace planned_cells_test
}  // namespace kvbench::test
