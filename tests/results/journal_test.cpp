#include "results/journal.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "results/made_results.hpp"
#include "results/output_folder.hpp"
#include "results/record.hpp"
#include "results/results_file.hpp"

namespace kvbench::test {
namespace journal_test {

// An output folder that is written to by several runs, one after another.
struct Output {
  SweepFolder folder;
  Plan plan = made_plan(folder);
  std::string out = folder.file("out");
  std::string path = out + "/journal.jsonl";

  Json record(std::size_t cell, double error = 0.1) const {
    return cell_record(plan, plan.cells[cell], made_result(error), "again");
  }
  std::unique_ptr<Journal> open(const std::string& run = "1", bool fresh = false) const {
    return std::make_unique<Journal>(out, plan, Json{{"run", run}},
                                     Journal::Options{.fresh = fresh, .shard = ""});
  }
  // A journal with the records of the first cells.
  void write(std::size_t cells) const {
    const auto journal = open();
    for (std::size_t c = 0; c < cells; ++c) journal->append(c, record(c));
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_CASE_FIXTURE(Output, "a header line, then one line per finished cell") {
  write(3);
  const std::vector<std::string> lines = lines_of(read_text(path));
  REQUIRE(lines.size() == 4);
  const Json header = Json::parse(lines[0]);
  CHECK(header["kind"] == "kvbench.journal");
  CHECK(header["plan"]["hash"] == plan.hash);
  CHECK(header["dumps"][0]["fingerprint"] == "fingerprint-of-a");
  for (std::size_t c = 0; c < 3; ++c) CHECK(lines[c + 1] == to_line(record(c)));
}

TEST_CASE_FIXTURE(Output, "a journal that cannot be looked up is refused, not replaced") {
  std::filesystem::create_directories(out);
  std::filesystem::create_symlink("journal.jsonl", path);  // a loop
  CHECK_THROWS_AS(open(), IoError);
  CHECK(std::filesystem::is_symlink(path));
}

TEST_CASE_FIXTURE(Output, "a run finds what an earlier one finished, and appends to it") {
  write(3);
  const std::string before = read_text(path);
  {
    const auto journal = open("2");
    CHECK(journal->reused_cells() == 3);
    CHECK(journal->state(2) == CellState::kOk);
    CHECK(journal->state(3) == CellState::kMissing);
    CHECK(to_line(journal->read(1)) == to_line(record(1)));
    CHECK(journal->provenance().size() == 1);
    journal->append(3, record(3));
    journal->append(4, record(4));
    CHECK(to_line(journal->read(3)) == to_line(record(3)));
    CHECK(journal->provenance().size() == 2);
  }
  const std::string after = read_text(path);
  CHECK(after.substr(0, before.size()) == before);
  CHECK(lines_of(after).size() == 6);
  const auto journal = open("3");
  CHECK(journal->reused_cells() == 5);
  REQUIRE(journal->provenance().size() == 2);
  CHECK(journal->provenance()[1]["run"] == "2");
  CHECK(to_line(journal->read(3)) == to_line(record(3)));
}

TEST_CASE_FIXTURE(Output, "a journal cut at any byte loses the torn line and nothing else") {
  write(2);
  const std::string whole = read_text(path);
  const std::vector<std::string> lines = lines_of(whole);
  const std::size_t header_end = lines[0].size() + 1;
  const std::size_t first_end = header_end + lines[1].size() + 1;
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    if (cut < header_end && cut % 16 != 0) continue;  // beginning anew waits for the disk
    write_text(path, whole.substr(0, cut));
    const std::size_t expected = cut == whole.size() ? 2 : cut >= first_end ? 1 : 0;
    const auto journal = open("2");
    REQUIRE(journal->reused_cells() == expected);
    const std::string kept = read_text(path);
    if (cut < header_end) {
      CHECK(Json::parse(kept)["provenance"][0]["run"] == "2");  // begun anew: no line was whole
    } else {
      REQUIRE(kept == whole.substr(0, expected == 2   ? whole.size()
                                      : expected == 1 ? first_end
                                                      : header_end));
    }
    if (cut % 97 != 0) continue;
    for (std::size_t c = expected; c < 2; ++c) journal->append(c, record(c));
    CHECK(to_line(journal->read(1)) == to_line(record(1)));
  }
}

TEST_CASE_FIXTURE(Output, "the last record of a cell holds") {
  {
    const auto journal = open();
    journal->append(1, failed_record(plan, plan.cells[1], "no luck", "again"));
    CHECK(journal->state(1) == CellState::kFailed);
    journal->append(1, record(1));
    CHECK(journal->state(1) == CellState::kOk);
  }
  const auto journal = open();
  CHECK(journal->state(1) == CellState::kOk);
  CHECK(journal->read(1)["status"] == "ok");
  CHECK(journal->count(CellState::kOk) == 1);
}

TEST_CASE_FIXTURE(Output, "damaged lines are kept, counted, and their cells are missing") {
  write(3);
  std::vector<std::string> lines = lines_of(read_text(path));
  std::string damaged = lines[2];
  std::fill(damaged.begin() + 40, damaged.end(), '\0');
  const std::string text = lines[0] + "\n" + lines[1] + "\n" + damaged + "\n" + lines[3] + "\n";
  write_text(path, text);
  const auto journal = open();
  CHECK(journal->damaged_lines() == 1);
  CHECK(journal->state(0) == CellState::kOk);
  CHECK(journal->state(1) == CellState::kMissing);
  CHECK(journal->state(2) == CellState::kOk);
  CHECK(to_line(journal->read(2)) == to_line(record(2)));
  CHECK(read_text(path) == text);
}

TEST_CASE_FIXTURE(Output, "another plan takes over the cells that both describe, line by line") {
  write(3);
  const std::vector<std::string> before = lines_of(read_text(path));
  const Plan wider = made_plan(folder, "\"seeds\": [6, 7, 8]");
  REQUIRE(wider.hash != plan.hash);
  {
    const Journal journal(out, wider, Json{{"run", "2"}}, {});
    CHECK(journal.plan_changed());
    std::size_t known = 0;
    for (std::size_t c = 0; c < wider.cells.size(); ++c) {
      if (journal.state(c) == CellState::kMissing) continue;
      ++known;
      CHECK(journal.read(c)["id"] == wider.cells[c].id);
    }
    CHECK(known == 3);
    CHECK(journal.reused_cells() == 3);
  }
  const std::vector<std::string> after = lines_of(read_text(path));
  REQUIRE(after.size() == before.size());
  CHECK(Json::parse(after[0])["plan"]["hash"] == wider.hash);
  for (std::size_t i = 1; i < before.size(); ++i) CHECK(after[i] == before[i]);
  CHECK(open("3")->reused_cells() == 3);
}

TEST_CASE_FIXTURE(Output, "a plan that lacks finished cells of the folder is refused") {
  write(12);
  const std::string before = read_text(path);
  const Plan narrower = made_plan(folder, "\"seeds\": [7]");
  CHECK_THROWS_WITH_AS(
      Journal(out, narrower, Json(), {}),
      doctest::Contains("finished cells of another sweep, \"quick\"; choose another "
                        "--out, discard them by --fresh, or keep both in this "
                        "folder by --add"),
      InputError);
  CHECK(read_text(path) == before);
  CHECK(Journal(out, narrower, Json(), {.add = true, .shard = ""}).plan_changed());
  CHECK(open()->reused_cells() == 12);  // the wider plan has every cell of the folder
  CHECK_FALSE(Journal(out, plan, Json(), {.fresh = true, .shard = ""}).plan_changed());
}

TEST_CASE_FIXTURE(Output, "failed and skipped cells are nothing to lose") {
  {
    const auto journal = open();
    for (std::size_t c = 0; c < plan.cells.size(); ++c) {
      journal->append(c, failed_record(plan, plan.cells[c], "x", "again"));
    }
  }
  const Plan narrower = made_plan(folder, "\"seeds\": [7]");
  CHECK(Journal(out, narrower, Json(), {}).foreign_cells() > 0);
}

TEST_CASE_FIXTURE(Output, "results of another plan are not replaced where the journal is gone") {
  const std::string results = out + "/results.json";
  write(12);
  {
    const auto journal = open();
    write_results(results, plan, *journal,
                  std::vector<std::optional<GroupTiming>>(plan.groups.size()));
  }
  std::filesystem::remove(path);
  const Plan narrower = made_plan(folder, "\"seeds\": [7]");
  CHECK_THROWS_WITH_AS(Journal(out, narrower, Json(), {}),
                       doctest::Contains("out/results.json: has "), InputError);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(open()->reused_cells() == 0);  // the same plan, and a wider one, may
  std::filesystem::remove(path);
  CHECK_NOTHROW(Journal(out, made_plan(folder, "\"seeds\": [6, 7, 8, 9]"), Json(), {}));
  CHECK(keep_other_results(results, plan).empty());
  const std::string kept = keep_other_results(results, narrower);
  CHECK(kept == out + "/results-" + plan.hash.substr(0, 8) + ".json");
  CHECK(std::filesystem::exists(kept));
  CHECK_FALSE(std::filesystem::exists(results));
}

TEST_CASE_FIXTURE(Output, "a journal that another program empties ends the run, not the program") {
  write(2);
  const auto journal = open();
  std::filesystem::resize_file(path, 0);
  CHECK_THROWS_WITH_AS(journal->append(2, record(2)), doctest::Contains("was truncated by another"),
                       IoError);
  CHECK_THROWS_AS(journal->read(0), IoError);
  write_text(path, std::string(1 << 16, '\n'));
  CHECK_THROWS_WITH_AS(journal->read(0), doctest::Contains("was changed by another program"),
                       IoError);
}

TEST_CASE_FIXTURE(Output, "cells of other plans are counted once each, and lead nobody astray") {
  write(12);
  const Plan narrower = made_plan(folder, "\"seeds\": [7]");
  {
    Journal journal(out, narrower, Json{{"run", "2"}}, {.add = true, .shard = ""});
    CHECK(journal.reused_cells() + journal.foreign_cells() == 12);
    CHECK(journal.foreign_cells() > 0);
    for (std::size_t c = 0; c < narrower.cells.size(); ++c) {
      if (journal.state(c) == CellState::kMissing) {
        journal.append(c, failed_record(narrower, narrower.cells[c], "x", "again"));
      }
    }
  }
  CHECK(Journal(out, plan, Json{{"run", "3"}}, {.add = true, .shard = ""}).reused_cells() >= 12);
}

TEST_CASE_FIXTURE(Output,
                  "the header follows what the folder stands for, also under the same ids") {
  write(3);
  const std::vector<std::string> before = lines_of(read_text(path));
  Plan renamed = plan;
  renamed.name = "other";
  renamed.config["name"] = "other";
  {
    const Journal journal(out, renamed, Json{{"run", "2"}}, {.fresh = false, .shard = "2/3"});
    CHECK_FALSE(journal.plan_changed());
    CHECK(journal.reused_cells() == 3);
    CHECK(to_line(journal.read(2)) == to_line(record(2)));
  }
  const std::vector<std::string> after = lines_of(read_text(path));
  const Json header = Json::parse(after[0]);
  CHECK(header["config"]["name"] == "other");
  CHECK(header["shard"] == "2/3");
  CHECK(header["provenance"].size() == 1);
  CHECK(std::equal(before.begin() + 1, before.end(), after.begin() + 1, after.end()));
}

TEST_CASE_FIXTURE(Output, "a dump that changed under its name is refused, one that moved is not") {
  write(3);
  const std::string text = read_text(path);
  const auto with_dump = [&](const std::string& dump_path, const std::string& fingerprint) {
    Plan other = plan;
    other.dumps[0].path = dump_path;
    other.dumps[0].fingerprint = fingerprint;
    other.hash = "other";
    return other;
  };
  const std::string dump_path = plan.dumps[0].path;
  CHECK_THROWS_WITH_AS(Journal(out, with_dump(dump_path, "new"), Json(), {}),
                       doctest::Contains("has changed since"), InputError);
  CHECK(read_text(path) == text);
  CHECK_NOTHROW(Journal(out, with_dump("/moved", plan.dumps[0].fingerprint), Json(), {}));
  // The state is kept while the folder has another dump.
  CHECK_NOTHROW(Journal(out, with_dump("/third", "third"), Json(), {}));
  CHECK_THROWS_AS(Journal(out, with_dump("/moved", "new"), Json(), {}), InputError);
  CHECK_NOTHROW(Journal(out, with_dump("/moved", plan.dumps[0].fingerprint), Json(), {}));
  CHECK_NOTHROW(Journal(out, with_dump("/moved", "new"), Json(), {.fresh = true, .shard = ""}));
}

TEST_CASE_FIXTURE(Output, "a dump of samples is the same one by its size and time") {
  const auto with_state = [&](const std::string& fingerprint, const std::string& state) {
    Plan other = plan;
    other.dumps[0].fingerprint = fingerprint;
    other.dumps[0].state = state;
    return other;
  };
  const std::string of_a = plan.dumps[0].fingerprint;
  const Plan first = with_state(of_a, "2000 bytes, 17.000000005");
  const Plan later = with_state(of_a, "2000 bytes, 18.000000005");
  CHECK_NOTHROW(Journal(out, first, Json(), {}));
  CHECK_NOTHROW(Journal(out, first, Json(), {}));
  const std::string text = read_text(path);
  CHECK_THROWS_WITH_AS(Journal(out, later, Json(), {}),
                       doctest::Contains("`touch -d @17.000000005 '"), InputError);
  const Plan longer = with_state(of_a, "20000 bytes, 17.000000005");
  CHECK_THROWS_WITH_AS(Journal(out, longer, Json(), {}), doctest::Contains("; restore it, choose"),
                       InputError);
  CHECK(read_text(path) == text);
  // Remembered while the folder is used with another dump.
  Plan moved = with_state("third", "");
  moved.dumps[0].path = "/third";
  CHECK_NOTHROW(Journal(out, moved, Json(), {}));
  CHECK_THROWS_AS(Journal(out, later, Json(), {}), InputError);
  CHECK_NOTHROW(Journal(out, later, Json(), {.fresh = true, .shard = ""}));
  CHECK_NOTHROW(Journal(out, later, Json(), {}));
}

TEST_CASE_FIXTURE(Output, "fresh begins a new journal") {
  write(3);
  const auto journal = open("2", true);
  CHECK(journal->reused_cells() == 0);
  CHECK(lines_of(read_text(path)).size() == 1);
}

TEST_CASE_FIXTURE(Output, "two runs at once on one folder are refused, one after another not") {
  auto first = open();
  CHECK_THROWS_WITH_AS(open("2"), doctest::Contains("another kvbench run"), InputError);
  CHECK_THROWS_AS(open("2", true), InputError);
  first.reset();
  CHECK_NOTHROW(open("2"));
}

TEST_CASE_FIXTURE(Output, "a file that is not a journal is refused and left as it is") {
  std::filesystem::create_directories(out);
  for (const char* text : {"{\"kind\": \"other\"}\n", "hello\n", "[1, 2]\n", "null\n"}) {
    write_text(path, text);
    CHECK_THROWS_WITH_AS(open(), doctest::Contains("is not a kvbench journal"), InputError);
    CHECK(read_text(path) == text);
  }
  write_text(path, "{\"kind\":\"kvbench.journal\",\"schema_version\":\"2.0.0\"}\n");
  CHECK_THROWS_WITH_AS(open(), doctest::Contains("another version"), InputError);
}

TEST_CASE_FIXTURE(Output, "a folder that cannot be made is bad input") {
  write_text(folder.file("file"), "");
  CHECK_THROWS_AS(Journal(folder.file("file"), plan, Json(), {}), IoError);
  CHECK_THROWS_AS(Journal(folder.file("file") + "/out", plan, Json(), {}), IoError);
}

TEST_CASE_FIXTURE(Output, "a line is in the file as soon as append returns, even if killed then") {
  std::filesystem::create_directories(out);
  const pid_t child = fork();
  if (child == 0) {
    const auto journal = open();
    for (std::size_t c = 0; c < 4; ++c) journal->append(c, record(c));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(open("2")->reused_cells() == 4);
}

}  // namespace journal_test
}  // namespace kvbench::test
