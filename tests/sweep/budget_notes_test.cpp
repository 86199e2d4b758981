#include "sweep/budget_notes.hpp"

#include <doctest/doctest.h>

#include "sweep/make_plan.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace budget_notes_test {

using Notes = std::vector<std::string>;

// The notes for two layers of 100 tokens, and one of 300.
Notes notes_of(const std::string& algorithms) {
  const SweepFolder folder;
  const std::string text =
      R"({"schema_version": 1, "name": "quick", "dumps": ["a.h5", "b.h5"], "algorithms": [)";
  return notes_of_budgets(
      make_plan(folder.parse(text + algorithms + "]}"),
                {planned_dump("a", 100, {0, 1}, 2), planned_dump("b", 300, {0}, 2)}));
}

TEST_CASE("a budget of more tokens than there are is noted once for its label") {
  CHECK(notes_of(entry("window", R"("budget": [8, 100])")).empty());
  CHECK(notes_of(entry("window", R"("budget": [8, 101, 250])")) ==
        Notes{"window: a budget of 101 tokens or more leaves nothing out in 2 of 3 groups, which "
              "have fewer; first sequence 0, layer 0 of /dumps/a.h5, of 100 tokens"});
  const std::string labelled =
      R"({"algorithm": "window", "label": "wide", "params": {"budget": 400}})";
  CHECK(notes_of(entry("window", R"("budget": 301)") + ", " + labelled).size() == 2);
}

TEST_CASE("budgets that are parts, and methods without one, have no note") {
  CHECK(notes_of(entry("window", R"("budget": 0.5)") + ", " + entry("exact", "")).empty());
}

}  // namespace budget_notes_test
}  // namespace kvbench::test
