#include "results/results_file.hpp"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>

#include "results/journal.hpp"
#include "results/made_results.hpp"
#include "results/read_results.hpp"
#include "results/record.hpp"
#include "system/file.hpp"

namespace kvbench::test {
namespace results_file_test {

struct Output {
  SweepFolder folder;
  Plan plan = made_plan(folder);
  std::string out = folder.file("out");
  std::string path = out + "/results.json";
  std::vector<std::optional<GroupTiming>> no_timing =
      std::vector<std::optional<GroupTiming>>(plan.groups.size());

  Json record(std::size_t c) const {
    const PlannedCell& cell = plan.cells[c];
    if (cell.skip_reason) return skipped_record(plan, cell, "again");
    return cell_record(plan, cell, made_result(0.1 + 0.01 * static_cast<double>(c)), "again");
  }
  // Appends the records of cells [first, last) from the last to the first.
  void append(Journal& journal, std::size_t first, std::size_t last) const {
    for (std::size_t c = last; c-- > first;) journal.append(c, record(c));
  }
};

Json without_volatile(Json results) {
  results.erase("provenance");
  results.erase("groups");
  for (Json& cell : results["cells"]) {
    cell.erase("timing");
    cell.erase("repro");
  }
  return results;
}

TEST_CASE_FIXTURE(Output, "cells stand in the order of the plan, whatever order they finished in") {
  Journal journal(out, plan, Json{{"run", 1}}, {});
  append(journal, 0, plan.cells.size());
  const ResultsOutcome outcome = write_results(path, plan, journal, no_timing);
  CHECK(outcome.complete());
  const Json results = read_results(path);
  std::vector<std::string> keys;
  for (const auto& [name, member] : results.items()) keys.push_back(name);
  CHECK(keys == std::vector<std::string>{"schema_version", "kind", "name", "status", "config",
                                         "provenance", "plan", "dumps", "cells", "groups",
                                         "summary"});
  CHECK(results["schema_version"] == "1.8.0");
  CHECK(results["kind"] == "kvbench.results");
  CHECK(results["status"] == "complete");
  CHECK(results["provenance"] == Json::array({Json{{"run", 1}}}));
  CHECK(results["plan"]["hash"] == plan.hash);
  CHECK(results["plan"]["cells"] == plan.cells.size());
  CHECK(results["plan"]["skipped"] == 4);
  CHECK(results["plan"]["ok"] == plan.cells.size() - 4);
  CHECK(results["dumps"][0]["fingerprint"] == "fingerprint-of-a");
  CHECK(results["dumps"][0]["n_layers"] == 30);
  Json config = results["config"];  // its dumps are named from the current folder
  namespace fs = std::filesystem;
  const fs::path dump = Json(plan.config)["dumps"][0].get<std::string>();
  CHECK(fs::absolute(config["dumps"][0].get<std::string>()).lexically_normal() == dump);
  config["dumps"][0] = dump.string();
  CHECK(to_line(config) == to_line(Json(plan.config)));
  REQUIRE(results["cells"].size() == plan.cells.size());
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    CHECK(to_line(results["cells"][c]) == to_line(record(c)));
  }
  CHECK(results["groups"].size() == plan.groups.size());
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE_FIXTURE(Output,
                  "an interrupted and resumed run ends with the content of an undisturbed one") {
  std::string undisturbed;
  {
    Journal journal(folder.file("other"), plan, Json{{"run", 0}}, {});
    append(journal, 0, plan.cells.size());
    write_results(folder.file("other.json"), plan, journal, no_timing);
    undisturbed = to_line(without_volatile(read_results(folder.file("other.json"))));
  }
  {
    Journal journal(out, plan, Json{{"run", 1}}, {});
    append(journal, 5, 9);
    const ResultsOutcome outcome = write_results(path, plan, journal, no_timing);
    CHECK_FALSE(outcome.complete());
    CHECK(outcome.missing == plan.cells.size() - 4);
    const Json results = read_results(path);
    CHECK(results["status"] == "incomplete");
    CHECK(results["cells"].size() == 4);
  }
  Journal journal(out, plan, Json{{"run", 2}}, {});
  append(journal, 9, plan.cells.size());
  append(journal, 0, 5);
  write_results(path, plan, journal, no_timing);
  const Json results = read_results(path);
  CHECK(results["provenance"].size() == 2);
  CHECK(to_line(without_volatile(results)) == undisturbed);
}

TEST_CASE_FIXTURE(Output, "failed cells are counted, and the label is the sweep's own") {
  {
    Journal journal(out, plan, Json(), {});
    for (std::size_t c = 0; c < plan.cells.size(); ++c) {
      journal.append(c, failed_record(plan, plan.cells[c], "no luck", "again"));
    }
  }
  plan.cells.setting(plan.cells[3].setting).label = "renamed";
  Journal journal(out, plan, Json(), {});
  const ResultsOutcome outcome = write_results(path, plan, journal, no_timing);
  CHECK(outcome.complete());
  CHECK(outcome.failed == plan.cells.size());
  CHECK(read_results(path)["cells"][3]["label"] == "renamed");
}

TEST_CASE_FIXTURE(Output, "a record has the journal's bytes, without the provenance of its run") {
  Journal journal(out, plan, Json{{"run", 1}}, {});
  append(journal, 0, plan.cells.size());
  write_results(path, plan, journal, no_timing);
  const std::string results = read_text(path);
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    CHECK(results.find("\n    " + to_line(record(c)) + (c + 1 < plan.cells.size() ? "," : "\n")) !=
          std::string::npos);
  }
}

TEST_CASE_FIXTURE(Output, "group timings of an earlier run of the same plan are carried over") {
  Journal journal(out, plan, Json(), {});
  append(journal, 0, plan.cells.size());
  auto timing = no_timing;
  timing[0] = GroupTiming{.read_seconds = 1.5, .reference_seconds = 2.5, .metrics_seconds = 0.5};
  write_results(path, plan, journal, timing);
  timing = no_timing;
  timing[1] = GroupTiming{.read_seconds = 4.0};
  write_results(path, plan, journal, timing);
  const Json groups = read_results(path)["groups"];
  CHECK(groups[0]["timing"]["reference_seconds"] == 2.5);
  CHECK(groups[1]["timing"]["read_seconds"] == 4.0);
  CHECK(groups[1]["layer"] == 4);

  plan.hash = "another";
  write_results(path, plan, journal, no_timing);
  CHECK(read_results(path)["groups"][0]["timing"]["reference_seconds"].is_null());
}

TEST_CASE_FIXTURE(Output, "a member that comes twice holds as it came last") {
  const auto read = [&](const std::string& members) {
    write_text(path,
               R"({"kind":"kvbench.results","schema_version":"1.6.0","cells":[],)" + members + "}");
    return read_results(path);
  };
  std::filesystem::create_directories(out);
  CHECK(read(R"("config":{"a":[1]},"config":5)")["config"] == 5);
  CHECK(read(R"("config":{"a":[1]},"config":[2])")["config"] == Json{2});
  CHECK(read(R"("config":{"a":[1]},"config":{})")["config"] == Json::object());
  CHECK(read(R"("config":{"a":[1, {}, [3]]})")["config"] == Json{{"a", {1, Json::object(), {3}}}});
  CHECK(read(R"("provenance":[1],"provenance":{"b":2})")["provenance"] == Json{{"b", 2}});
}

TEST_CASE_FIXTURE(Output, "an earlier file that cannot be read is replaced all the same") {
  Journal journal(out, plan, Json(), {});
  append(journal, 0, plan.cells.size());
  write_results(path, plan, journal, no_timing);
  const std::string whole = read_text(path);
  for (const std::string& earlier : {whole.substr(0, whole.size() / 2), std::string("[]")}) {
    write_text(path, earlier);
    write_results(path, plan, journal, no_timing);
    CHECK(read_text(path) == whole);
  }
}

TEST_CASE_FIXTURE(Output, "a place that cannot be written is an output error and leaves nothing") {
  Journal journal(out, plan, Json(), {});
  CHECK_THROWS_AS(write_results(folder.file("none/results.json"), plan, journal, no_timing),
                  IoError);
  std::filesystem::create_directories(folder.file("taken/inside"));
  CHECK_THROWS_AS(write_results(folder.file("taken"), plan, journal, no_timing), IoError);
  CHECK_FALSE(std::filesystem::exists(folder.file("taken.tmp")));
}

TEST_CASE_FIXTURE(Output, "what is not a results file of a known version is refused") {
  CHECK_THROWS_WITH_AS(read_results(folder.file("none.json")), doctest::Contains("cannot open"),
                       InputError);
  const auto refused = [&](const char* text, const char* words) {
    write_text(folder.file("r.json"), text);
    CHECK_THROWS_WITH_AS(read_results(folder.file("r.json")), doctest::Contains(words), InputError);
  };
  for (const char* text :
       {"[]", "{\"kind\": \"kvbench.results\"}", "{\"kind\": \"other\", \"cells\": []}"}) {
    refused(text, "is not a kvbench results file");
  }
  refused("", "is empty");
  refused("{", "byte 1;");
  refused("{\"kind\": \"kvbench.results\", \"cells\": [{\"id\"", "truncated");
  refused("{} {}", "byte 4;");
  refused("\x89HDF\r\n\x1a\n", "is an HDF5 file, as dumps are");
  refused("{\"kind\": \"kvbench.journal\"}", "is a journal");
  refused("{\"kind\": \"kvbench.inspection\"}", "is an inspection");
  refused("{\"algorithms\": []}", "is a sweep file");
  refused("{\"bounds\": []}", "is a bounds file");
  refused("{\"kind\": 1e999}", "number overflow");
  const std::string valid =
      R"({"kind": "kvbench.results", "schema_version": "1.6.0", "cells": []})";
  write_text(folder.file("r.json"), valid + std::string(1, '\0') + "{");
  CHECK_THROWS_WITH_AS(read_results(folder.file("r.json")), doctest::Contains("a byte of value 0"),
                       InputError);
  write_text(folder.file("r.json"),
             R"({"kind": "kvbench.results", "schema_version": "2.0.0", "cells": []})");
  CHECK_THROWS_WITH_AS(read_results(folder.file("r.json")), doctest::Contains("2.0.0"), InputError);
  refused(R"({"kind": "kvbench.results", "schema_version": "1.6.0", "cells": [],
              "layers": {"a": {}}})",
          "/layers: must be an array");
}

}  // namespace results_file_test
}  // namespace kvbench::test
