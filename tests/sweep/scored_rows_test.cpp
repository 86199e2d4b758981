// Which rows are scored, and why cells have none or no answer for them.
#include "sweep/scored_rows.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sweep/cell_identity.hpp"
#include "sweep/make_plan.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace scored_rows_test {

using nlohmann::json;

std::vector<Index> rows_of(const std::string& rows, Index tokens, Index prompt,
                           Index first_query = 0) {
  StreamShape shape;
  shape.tokens = tokens;
  shape.first_query = first_query;
  ErrorList errors("f");
  auto result = scored_rows(json::parse(rows), shape, prompt, "sequence 0", errors);
  errors.throw_if_any();
  return result;
}

TEST_CASE("the forms of rows") {
  using Rows = std::vector<Index>;
  CHECK(rows_of("\"all\"", 10, 6) == Rows{6, 7, 8, 9});
  CHECK(rows_of(R"({"last": 2})", 10, 6) == Rows{8, 9});
  CHECK(rows_of(R"({"last": 4})", 10, 6) == Rows{6, 7, 8, 9});
  CHECK(rows_of(R"({"last": 999999999999999})", 10, 6) == Rows{6, 7, 8, 9});
  CHECK(rows_of(R"({"every": 3})", 10, 3) == Rows{3, 6, 9});
  CHECK(rows_of(R"({"every": 1})", 10, 8) == Rows{8, 9});
  CHECK(rows_of(R"({"every": 999999999999999})", 10, 3) == Rows{3});
  CHECK(rows_of("[9, 6]", 10, 6) == Rows{6, 9});
  CHECK(rows_of("\"all\"", 1, 0) == Rows{0});
}

TEST_CASE("the same forms of the prompt's rows") {
  using Rows = std::vector<Index>;
  const auto of_prompt = [](const std::string& form, Index tokens, Index prompt,
                            Index first_query = 0) {
    return rows_of("{\"prompt\": " + form + "}", tokens, prompt, first_query);
  };
  CHECK(of_prompt("\"all\"", 10, 4) == Rows{0, 1, 2, 3});
  CHECK(of_prompt(R"({"last": 2})", 10, 6) == Rows{4, 5});
  CHECK(of_prompt(R"({"last": 999999999999999})", 10, 3) == Rows{0, 1, 2});
  CHECK(of_prompt(R"({"every": 3})", 10, 7) == Rows{0, 3, 6});
  CHECK(of_prompt(R"({"every": 999999999999999})", 10, 7) == Rows{0});
  CHECK(of_prompt("[5, 0]", 10, 6) == Rows{0, 5});
  CHECK(of_prompt(R"({"every": 2})", 10, 7, 4) == Rows{4, 6});
  CHECK(of_prompt("\"all\"", 10, 0).empty());
  CHECK_THROWS_WITH(of_prompt("[6]", 10, 6), doctest::Contains("/evaluate/rows/prompt/0"));
  CHECK_THROWS_WITH(of_prompt("[0]", 10, 0), doctest::Contains("without one"));
}

TEST_CASE("cells that have no answer for rows of the prompt are skipped and say why") {
  const SweepFolder folder;
  const auto plan = [&](const std::string& more) {
    const std::string rows = R"("evaluate": {"rows": {"prompt": {"every": 64}}})";
    const std::string entries = entry("exact", "") + ", " + entry("snapkv", R"("budget": 80)") +
                                ", " +
                                R"({"algorithm": "window", "params": {"budget": 8},
                                    "storage": ["float", {"keys": "bf16"}]})";
    return make_plan(folder.parse(sweep(entries, rows + more)), {planned_dump("a", 200, {0}, 1)});
  };
  const Plan whole = plan(R"(, "replay": {"prompt_tokens": 150})");
  CHECK(whole.groups[0].rows == std::vector<Index>{0, 64, 128});
  REQUIRE(whole.cells.size() == 4);
  CHECK_FALSE(whole.cells[0].skip_reason);
  CHECK(*whole.cells[1].skip_reason ==
        "evaluate.rows asks for rows of the prompt, and snapkv answers decode rows alone");
  CHECK_FALSE(whole.cells[2].skip_reason);
  CHECK(*whole.cells[3].skip_reason ==
        "evaluate.rows asks for rows of the prompt, which attend to keys and values that no codec "
        "has written; leave storage out, or score decode rows");
  CHECK(cell_key(whole, whole.cells[0]).at("rows").dump() == R"({"prompt":{"every":64}})");

  const Plan without = plan(R"(, "replay": {"prompt_tokens": 0})");
  for (const PlannedCell& cell : without.cells) {
    CHECK(cell.skip_reason->find("the prompt, which is empty") != std::string::npos);
  }
}

TEST_CASE("rows without stored query are not scored") {
  using Rows = std::vector<Index>;
  CHECK(rows_of("\"all\"", 10, 6, 8) == Rows{8, 9});
  CHECK(rows_of(R"({"every": 2})", 10, 5, 8) == Rows{9});
  CHECK(rows_of(R"({"last": 5})", 10, 0, 8) == Rows{8, 9});
  CHECK(rows_of("[6, 9]", 10, 6, 8) == Rows{9});
  CHECK(rows_of("\"all\"", 10, 6, 10).empty());
}

TEST_CASE("a cell without a scored row is skipped and says why") {
  const SweepFolder folder;
  const auto plan = [&](const std::string& more) {
    return make_plan(folder.parse(sweep(entry("exact", ""), more)),
                     {planned_dump("a", 2048, {0}, 2, 64)});
  };
  const Plan whole = plan("\"select\": {}");
  CHECK(whole.groups[0].prompt == 1984);
  CHECK(whole.groups[0].rows.size() == 64);
  CHECK_FALSE(whole.cells[0].skip_reason);

  const Plan cut = plan(R"("select": {"tokens": 1984})");
  CHECK(cut.groups[0].prompt == 1728);
  CHECK(cut.groups[0].rows.empty());
  REQUIRE(cut.cells.size() == 2);
  REQUIRE(cut.cells[1].skip_reason);
  CHECK(cut.cells[1].skip_reason->find("first 1984 tokens") != std::string::npos);

  const Plan one = plan(R"("select": {"tokens": 1985})");
  CHECK(one.groups[0].rows == std::vector<Index>{1984});
  CHECK_FALSE(one.cells[0].skip_reason);

  const Plan early = plan(R"("replay": {"prompt_tokens": 100}, "evaluate": {"rows": [200, 300]})");
  REQUIRE(early.cells[0].skip_reason);
  CHECK(early.cells[0].skip_reason->find("from row 1984 on") != std::string::npos);
}

}  // namespace scored_rows_test
}  // namespace kvbench::test
