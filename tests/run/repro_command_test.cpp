#include "run/repro_command.hpp"

#include <doctest/doctest.h>

#include "run/small_run.hpp"

namespace kvbench::test {
namespace repro_command_test {

TEST_CASE("a command names the sweep's file, what changed it, and the cell") {
  const SmallRun run;
  const PlannedCell& cell = run.plan.cells[0];
  const std::string id = cell.id.text();
  CHECK(repro_of({.file = "my sweeps/it's.json", .sets = {"/seeds=[1, 2]", "a.b=3"}}, "out",
                 cell) == "kvbench run --config 'my sweeps/it'\\''s.json' --only " + id +
                              " --out repro/" + id.substr(0, 8) +
                              " --set '/seeds=[1, 2]' --set a.b=3");
}

TEST_CASE("a sweep from no file is the one that the run wrote, with its changes in it") {
  const SmallRun run;
  const PlannedCell& cell = run.plan.cells[0];
  for (const char* file : {"", "-"}) {
    CHECK(repro_of({.file = file, .sets = {"a=1"}}, "some/out", cell) ==
          "kvbench run --config some/out/sweep.json --only " + cell.id.text() + " --out repro/" +
              cell.id.text().substr(0, 8));
  }
}

TEST_CASE("a method that the program does not know is called in Python") {
  std::vector<AlgorithmDescription> table = all_algorithms();
  for (AlgorithmDescription& each : table) {
    if (each.id != "window") continue;
    each.id = "mine";
    each.title = "Mine";
  }
  const SmallRun run(entry("mine", R"("budget": 8)"), table);
  const PlannedCell& cell = run.plan.cells[0];
  CHECK(repro_of({.file = "a.json", .sets = {"b=1"}}, "out", cell) ==
        "kb.run(\"a.json\", out=\"repro/" + cell.id.text().substr(0, 8) + "\", only=\"" +
            cell.id.text() + "\", methods=[Mine], sets=[\"b=1\"])");
}

}  // namespace repro_command_test
}  // namespace kvbench::test
