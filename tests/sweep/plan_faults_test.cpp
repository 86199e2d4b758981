// Faults of a sweep that show only once its dumps are known, and the place that each message names.
// The messages themselves are in tests/cli/bad_inputs/messages.txt.
#include <doctest/doctest.h>

#include "sweep_folder.hpp"

namespace kvbench::test {
namespace plan_faults_test {

struct Case {
  std::string text;
  std::vector<std::string> places;
};

// The beginnings of messages: the file and the JSON pointer.
std::vector<std::string> places(std::vector<std::string> messages) {
  for (std::string& message : messages) {
    const std::size_t pointer = message.find(": /");
    REQUIRE(pointer != std::string::npos);
    message.resize(message.find(": ", pointer + 2));
  }
  return messages;
}

std::string with(const std::string& more) { return sweep(entry("exact", ""), more); }

// Planned on dump a: sequences "0" (100 tokens) and "long" (200), layers 0, 1, 4 of 3 KV heads.
const Case kCases[] = {
    {with(R"("select": {"layers": [1, 7, 9]})"),
     {"quick.json: /select/layers/1", "quick.json: /select/layers/2"}},
    {with(R"("select": {"kv_heads": [3]})"), {"quick.json: /select/kv_heads/0"}},
    {with(R"("select": {"sequences": ["1", "0"]})"), {"quick.json: /select/sequences/0"}},
    {sweep(R"({"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 4},
               "where": {"layers": [2], "kv_heads": [5], "sequences": ["x"]}})"),
     {"quick.json: /algorithms/1/where/sequences/0", "quick.json: /algorithms/1/where/layers/0",
      "quick.json: /algorithms/1/where/kv_heads/0"}},
    {with(R"("select": {"tokens": 101})"), {"quick.json: /select/tokens"}},
    {with(R"("replay": {"prompt_tokens": 100})"), {"quick.json: /replay/prompt_tokens"}},
    {with(R"("replay": {"prompt_tokens": 60}, "select": {"tokens": 60})"),
     {"quick.json: /replay/prompt_tokens", "quick.json: /replay/prompt_tokens"}},
    {with(R"("replay": {"prompt_tokens": "dump"})"),
     {"quick.json: /replay/prompt_tokens", "quick.json: /replay/prompt_tokens"}},
    {with(R"("replay": {"prompt_tokens": 90}, "evaluate": {"rows": [95, 89, 150]})"),
     {"quick.json: /evaluate/rows/1", "quick.json: /evaluate/rows/2",
      "quick.json: /evaluate/rows/1"}},
    {sweep(R"({"algorithm": "exact", "where": {"layers": [4]}})", R"("select": {"layers": [0]})"),
     {"quick.json: /algorithms"}},
    {sweep(entry("uniform", R"("T": {"range": [1, 6, 1]})"), R"("seeds": {"count": 100000})"),
     {"quick.json: /algorithms"}},
    {with(R"("select": {"layers": [8]}, "replay": {"prompt_tokens": 150})"),
     {"quick.json: /select/layers/0"}},
};

TEST_CASE("every fault of a plan is reported once, at its place in the file") {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0, 1, 4}, 3);
  dump.sequences.push_back(planned_dump("a", 200, {0, 1, 4}, 3).sequences[0]);
  dump.sequences[1].name = "long";
  dump.sequences[1].prompt_tokens = 200;
  for (const Case& wrong : kCases) {
    CAPTURE(wrong.text);
    const SweepConfig config = folder.parse(wrong.text);
    CHECK(places(folder.messages([&] { make_plan(config, {dump}); })) == wrong.places);
  }
  const auto of_both = folder.messages([&] {
    make_plan(folder.parse(with(R"("replay": {"prompt_tokens": 60}, "select": {"tokens": 60})")),
              {dump});
  });
  REQUIRE(of_both.size() == 2);
  CHECK(of_both[0].find("sequence 0 of /dumps/a.h5") != std::string::npos);
  CHECK(of_both[1].find("sequence long of /dumps/a.h5") != std::string::npos);
}

TEST_CASE("faults of the file and faults that only the dumps can tell are reported together") {
  const SweepFolder folder;
  const auto errors = [&](const std::string& text) {
    return places(folder.messages(
        [&] { make_plan(folder.parse_for_plan(text), {planned_dump("a", 100, {0, 1, 4}, 3)}); }));
  };
  CHECK(errors(sweep(R"({"algorithm": "window", "params": {"budgt": 4}, "where": {"layers": [9]}})",
                     R"("select": {"layers": [7], "tokens": 200}, "seed": 1)")) ==
        std::vector<std::string>{"quick.json: /seed", "quick.json: /algorithms/0/params/budgt",
                                 "quick.json: /select/layers/0",
                                 "quick.json: /algorithms/0/where/layers/0"});
  CHECK(
      errors(sweep(entry("exact", "\"x\": 1"), R"("select": {"tokens": 200})")) ==
      std::vector<std::string>{"quick.json: /algorithms/0/params/x", "quick.json: /select/tokens"});
}

TEST_CASE("a fault does not call forth others that are not there") {
  const SweepFolder folder;
  // The rows are right for the prompt that was meant.
  const std::string text = with(
      R"("replay": {"prompt_tokens": "10"}, "evaluate": {"rows": [20]}, "memory": {"element_bytes": 3})");
  CHECK(folder
            .messages(
                [&] { make_plan(folder.parse_for_plan(text), {planned_dump("a", 100, {0}, 1)}); })
            .size() == 2);
  // Without dumps there is nothing to compare with.
  CHECK(folder
            .messages([&] {
              folder.parse_for_plan(
                  R"({"schema_version": 1, "name": "q", "dumps": ["no.h5"], "algorithms": []})");
            })
            .size() == 2);
}

TEST_CASE("two dumps of equal content are a fault") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(with("\"seeds\": [1]"));
  PlannedDump copy = planned_dump("a", 100, {0}, 1);
  copy.path = "/dumps/copy.h5";
  CHECK(places(folder.messages([&] {
          make_plan(config, {planned_dump("a", 100, {0}, 1), planned_dump("b", 100, {0}, 1), copy});
        })) == std::vector<std::string>{"quick.json: /dumps"});
}

TEST_CASE("no dump drops out of a sweep unseen") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(with(R"("select": {"kv_heads": [2]})"));
  CHECK(places(folder.messages([&] {
          make_plan(config, {planned_dump("a", 100, {0}, 3), planned_dump("b", 100, {0}, 1)});
        })) == std::vector<std::string>{"quick.json: /select"});
}

TEST_CASE("a sequence whose name cannot be written as JSON is a fault") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(with("\"seeds\": [1]"));
  PlannedDump dump = planned_dump("a", 100, {0}, 1);
  dump.sequences[0].name = "\xff";
  const auto messages = folder.messages([&] { make_plan(config, {dump}); });
  REQUIRE(messages.size() == 1);
  CHECK(messages[0].find("has a name that is not UTF-8") != std::string::npos);
}

}  // namespace plan_faults_test
}  // namespace kvbench::test
