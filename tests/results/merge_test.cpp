#include "results/merge.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "results/journal.hpp"
#include "results/made_results.hpp"
#include "results/record.hpp"
#include "results/results_file.hpp"
#include "sweep/make_plan.hpp"

namespace kvbench::test {
namespace merge_test {

// A plan whose cells are spread over journals of several folders.
struct Shards {
  SweepFolder folder;
  Plan plan = made_plan(folder);

  Json record(std::size_t c, double shift = 0.0) const {
    const PlannedCell& cell = plan.cells[c];
    if (cell.skip_reason) return skipped_record(plan, cell, "again");
    return cell_record(plan, cell, made_result(0.1 + 0.01 * static_cast<double>(c) + shift),
                       "again");
  }
  std::string shard(const std::string& name) const { return folder.file(name); }
  // Writes cells first, first + step, .. as the run `name`.
  void write(const std::string& name, std::size_t first, std::size_t step,
             const std::string& label = "", double shift = 0.0) const {
    Journal journal(shard(name), plan, Json{{"run", name}}, {.fresh = false, .shard = label});
    for (std::size_t c = first; c < plan.cells.size(); c += step) {
      journal.append(c, record(c, shift));
    }
  }
  MergedJournals merge(const std::vector<std::string>& names) const {
    std::vector<std::string> folders;
    for (const std::string& name : names) folders.push_back(shard(name));
    return {folders, made_up_algorithms()};
  }
};

TEST_CASE_FIXTURE(Shards, "merged results are those of one journal, byte for byte") {
  write("whole", 0, 1);
  write("a", 0, 3, "1/3");
  write("b", 1, 3, "2/3");
  write("c", 2, 3, "3/3");
  const std::vector<std::optional<GroupTiming>> timing(plan.groups.size());
  const auto file = [&](const char* name) { return folder.file(name); };
  {
    const Journal whole(shard("whole"), plan, Json{{"run", "again"}}, {});
    CHECK(write_results(file("whole.json"), plan, whole, timing).complete());
  }
  const MergedJournals merged = merge({"c", "a", "b"});
  CHECK(merged.count(CellState::kMissing) == 0);
  CHECK(merged.shards() == 3);
  CHECK(merged.provenance().size() == 3);
  CHECK(write_results(file("merged.json"), merged.plan(), merged, timing).complete());
  Json one = Json::parse(read_text(file("whole.json")));
  Json other = Json::parse(read_text(file("merged.json")));
  for (Json* results : {&one, &other}) results->erase("provenance");
  CHECK(one.dump() == other.dump());
}

TEST_CASE_FIXTURE(Shards, "what no folder has is missing, and a folder without journal is told") {
  write("a", 0, 3, "1/3");
  write("c", 2, 3, "3/3");
  std::filesystem::create_directories(shard("begun"));
  write_text(shard("begun") + "/journal.jsonl", "{\"kind\":\"kvbench.jou");
  const MergedJournals merged = merge({"a", "b", "c", "begun"});
  CHECK(merged.absent() == std::vector<std::string>{shard("b"), shard("begun")});
  CHECK(merged.folders() == std::vector<std::string>{shard("a"), shard("c")});
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    CHECK((merged.state(c) == CellState::kMissing) == (c % 3 == 1));
  }
  CHECK_THROWS_WITH_AS(merge({"b", "begun"}), doctest::Contains("journal.jsonl"), InputError);
}

TEST_CASE_FIXTURE(Shards, "a shard that is not i/n is said of its journal, not of a command line") {
  const std::string path = shard("a") + "/journal.jsonl";
  for (const char* said : {"\"5/3\"", "\"two\"", "7", "[]"}) {
    CAPTURE(said);
    std::filesystem::remove_all(shard("a"));
    write("a", 0, 1, "2/3");
    std::string text = read_text(path);
    const std::size_t at = text.find("\"2/3\"");
    REQUIRE(at != std::string::npos);
    write_text(path, text.replace(at, 5, said));
    try {
      merge({"a"});
      FAIL("merged");
    } catch (const InputError& error) {
      const std::string message = error.what();
      CHECK(message.find(path) == 0);
      CHECK(message.find("/shard") != std::string::npos);
      CHECK(message.find(said) != std::string::npos);
      CHECK(message.find("--shard") == std::string::npos);
    }
  }
}

TEST_CASE_FIXTURE(Shards, "a torn last line counts for nothing and is left as it is") {
  write("a", 0, 1);
  const std::string path = shard("a") + "/journal.jsonl";
  const std::string text = read_text(path);
  write_text(path, text.substr(0, text.size() - 9));
  CHECK(merge({"a"}).count(CellState::kMissing) == 1);
  CHECK(read_text(path).size() == text.size() - 9);
}

TEST_CASE_FIXTURE(Shards,
                  "journals of another plan are refused, with the place where they differ") {
  write("a", 0, 2);
  const auto other = [&](const std::string& name, const Plan& another) {
    const Journal journal(shard(name), another, Json{{"run", name}}, {});
  };
  other("seeds", made_plan(folder, "\"seeds\": [7, 8, 10]"));
  CHECK_THROWS_WITH_AS(merge({"a", "seeds"}), doctest::Contains("/config/seeds"), InputError);
  Plan renamed = plan;
  renamed.config["name"] = "other";
  other("named", renamed);
  CHECK_THROWS_WITH_AS(merge({"a", "named"}), doctest::Contains("/config/name is \"other\""),
                       InputError);
  const SweepConfig config = folder.parse(
      sweep(entry("window", R"("budget": [0.0001, 16])") + ", " + entry("uniform", R"("T": 1)"),
            "\"seeds\": [7, 8, 9]"));
  other("cuda", make_plan(config, {planned_dump("a", 100, {0, 4}, 2)}, {}, "cuda"));
  CHECK_THROWS_WITH_AS(merge({"a", "cuda"}), doctest::Contains("same --device"), InputError);
}

TEST_CASE_FIXTURE(Shards, "a dump that lies elsewhere on another machine is the same dump") {
  write("a", 0, 2);
  Plan moved = plan;
  moved.dumps[0].path = "/elsewhere/a.h5";
  moved.config["dumps"] = {"/elsewhere/a.h5"};
  {
    Journal journal(shard("b"), moved, Json{{"run", "b"}}, {});
    for (std::size_t c = 1; c < plan.cells.size(); c += 2) journal.append(c, record(c));
  }
  CHECK(merge({"a", "b"}).count(CellState::kMissing) == 0);
}

TEST_CASE_FIXTURE(Shards, "a cell that two folders have must be the same in both") {
  write("a", 0, 1);
  write("b", 0, 2);
  CHECK(merge({"a", "b"}).count(CellState::kMissing) == 0);
  write("c", 4, 100, "", 1e-13);
  CHECK_THROWS_WITH_AS(merge({"a", "c"}), doctest::Contains(plan.cells[4].id.text().c_str()),
                       InputError);
}

TEST_CASE_FIXTURE(Shards, "where one folder failed at a cell and another did not, it is done") {
  write("a", 0, 1);
  {
    Journal journal(shard("b"), plan, Json{{"run", "b"}}, {});
    journal.append(4, failed_record(plan, plan.cells[4], "no memory", "again"));
  }
  CHECK(merge({"a", "b"}).state(4) == CellState::kOk);
  CHECK(merge({"b", "a"}).state(4) == CellState::kOk);
  CHECK(merge({"b"}).state(4) == CellState::kFailed);
}

TEST_CASE_FIXTURE(Shards, "shards cut otherwise are not numbered, builds that differ are named") {
  write("a", 0, 2, "1/2");
  write("b", 1, 2, "2/3");
  CHECK(merge({"a", "b"}).shards() == 0);
  CHECK(merge({"a", "b"}).differing_builds().empty());
  const Journal journal(shard("c"), plan, Json{{"version", "9"}, {"isa", "avx2"}}, {});
  CHECK(merge({"a", "c"}).differing_builds() == std::vector<std::string>{"version", "isa"});
}

}  // namespace merge_test
}  // namespace kvbench::test
