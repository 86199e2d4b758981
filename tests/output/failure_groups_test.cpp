#include "output/failure_groups.hpp"

#include <doctest/doctest.h>

namespace kvbench::test {
namespace failure_groups_test {

TEST_CASE("reasons that differ in numbers alone are one group, named by its first") {
  FailureGroups failures;
  failures.add("row 7: too far", 3);
  failures.add("no memory", 5);
  failures.add("row 12: too far", 8);
  failures.add("no memory", 9, 40);
  const std::vector<FailureGroup> groups = failures.all();
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].reason.find("row 7: too far") == 0);
  CHECK(groups[0].reason != "row 7: too far");  // says that others are alike
  CHECK(groups[0].first == 3);
  CHECK(groups[0].count == 2);
  CHECK(groups[1].reason == "no memory");
  CHECK(groups[1].first == 5);
  CHECK(groups[1].count == 41);
}

TEST_CASE("a cell without a reason has a line of its own, the others one per group") {
  const auto cell = [](int layer) {
    return Json{{"algorithm", "window"}, {"label", "w"}, {"sequence", "0"},
                {"layer", layer},        {"kv_head", 0}, {"params", {{"budget", 8}}},
                {"seed", nullptr}};
  };
  Json failed = cell(1);
  failed["reason"] = "no memory";
  Json again = cell(2);
  again["reason"] = "no memory";
  const auto lines = cell_lines({cell(0), failed, again});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "window/w/0/0/0 budget=8");
  CHECK(lines[1].find("2 cells: no memory") == 0);
  CHECK(lines[1].find("window/w/0/1/0 budget=8") != std::string::npos);
}

}  // namespace failure_groups_test
}  // namespace kvbench::test
