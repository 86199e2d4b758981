// What is wrong with a sweep only once its dumps are known.
#include <doctest/doctest.h>

#include "sweep_folder.hpp"

namespace kvbench::test {
namespace {

struct Case {
  std::string text;
  std::vector<std::string> messages;
};

std::string with(const std::string& more) { return sweep(entry("exact", ""), more); }

// Planned on dump a: sequences "0" (100 tokens) and "long" (200), layers 0, 1, 4 of 3 KV heads.
const Case kCases[] = {
    {with(R"("select": {"layers": [1, 7, 9]})"),
     {"quick.json: /select/layers/1: no dump has layer 7; known layers: 0, 1, 4",
      "quick.json: /select/layers/2: no dump has layer 9; known layers: 0, 1, 4"}},
    {with(R"("select": {"kv_heads": [3]})"),
     {"quick.json: /select/kv_heads/0: no dump has KV head 3; known KV heads: 0, 1, 2"}},
    {with(R"("select": {"sequences": ["1", "0"]})"),
     {"quick.json: /select/sequences/0: no dump has sequence 1; known sequences: 0, long"}},
    {sweep(R"({"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 4},
               "where": {"layers": [2], "kv_heads": [5], "sequences": ["x"]}})"),
     {"quick.json: /algorithms/1/where/sequences/0: no dump has sequence x; known sequences: 0, "
      "long",
      "quick.json: /algorithms/1/where/layers/0: no dump has layer 2; known layers: 0, 1, 4",
      "quick.json: /algorithms/1/where/kv_heads/0: no dump has KV head 5; known KV heads: 0, 1, "
      "2"}},
    {with(R"("select": {"tokens": 101})"),
     {"quick.json: /select/tokens: must be at most 100, the tokens of sequence 0 of /dumps/a.h5, "
      "is "
      "101"}},
    {with(R"("replay": {"prompt_tokens": 100})"),
     {"quick.json: /replay/prompt_tokens: must be from 0 to 99, so that at least one of the 100 "
      "tokens of sequence 0 of /dumps/a.h5 is decoded, is 100"}},
    {with(R"("replay": {"prompt_tokens": 60}, "select": {"tokens": 60})"),
     {"quick.json: /replay/prompt_tokens: must be from 0 to 59, so that at least one of the 60 "
      "tokens of sequence 0 of /dumps/a.h5 is decoded, is 60",
      "quick.json: /replay/prompt_tokens: must be from 0 to 59, so that at least one of the 60 "
      "tokens of sequence long of /dumps/a.h5 is decoded, is 60"}},
    {with(R"("replay": {"prompt_tokens": "dump"})"),
     {"quick.json: /replay/prompt_tokens: \"dump\" asks for the attribute prompt_tokens, which "
      "sequence 0 of /dumps/a.h5 does not have; give a number",
      "quick.json: /replay/prompt_tokens: must be from 0 to 199, so that at least one of the 200 "
      "tokens of sequence long of /dumps/a.h5 is decoded, is 200 in the dump"}},
    {with(R"("replay": {"prompt_tokens": 90}, "evaluate": {"rows": [95, 89, 150]})"),
     {"quick.json: /evaluate/rows/1: must be a decode row, from 90 (the end of the prompt) to 99, "
      "of sequence 0 of /dumps/a.h5, is 89",
      "quick.json: /evaluate/rows/2: must be a decode row, from 90 (the end of the prompt) to 99, "
      "of sequence 0 of /dumps/a.h5, is 150",
      "quick.json: /evaluate/rows/1: must be a decode row, from 90 (the end of the prompt) to 199, "
      "of sequence long of /dumps/a.h5, is 89"}},
    {sweep(R"({"algorithm": "exact", "where": {"layers": [4]}})", R"("select": {"layers": [0]})"),
     {"quick.json: /algorithms: no cell is left: no entry's \"where\" meets what is selected; "
      "widen "
      "one of them"}},
    {sweep(entry("uniform", R"("T": {"range": [1, 6, 1]})"), R"("seeds": {"count": 100000})"),
     {"quick.json: /algorithms: the sweep has 10800000 cells, more than 10000000; shorten an axis, "
      "the seeds or the selection"}},
    {with(R"("select": {"layers": [8]}, "replay": {"prompt_tokens": 150})"),
     {"quick.json: /select/layers/0: no dump has layer 8; known layers: 0, 1, 4"}},
};

TEST_CASE("every fault of a plan names file, place and remedy") {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0, 1, 4}, 3);
  dump.sequences.push_back(planned_dump("a", 200, {0, 1, 4}, 3).sequences[0]);
  dump.sequences[1].name = "long";
  dump.sequences[1].prompt_tokens = 200;
  for (const Case& wrong : kCases) {
    CAPTURE(wrong.text);
    const SweepConfig config = folder.parse(wrong.text);
    CHECK(folder.messages([&] { make_plan(config, {dump}); }) == wrong.messages);
  }
}

TEST_CASE("faults of the file and faults that only the dumps can tell are reported together") {
  const SweepFolder folder;
  const auto faults = [&](const std::string& text) {
    return folder.messages(
        [&] { make_plan(folder.parse_for_plan(text), {planned_dump("a", 100, {0, 1, 4}, 3)}); });
  };
  CHECK(
      faults(sweep(R"({"algorithm": "window", "params": {"budgt": 4}, "where": {"layers": [9]}})",
                   R"("select": {"layers": [7], "tokens": 200}, "seed": 1)")) ==
      std::vector<std::string>{
          "quick.json: /seed: unknown key of a sweep file; did you mean seeds?",
          "quick.json: /algorithms/0/params/budgt: unknown parameter of window; did you mean "
          "budget?",
          "quick.json: /select/layers/0: no dump has layer 7; known layers: 0, 1, 4",
          "quick.json: /algorithms/0/where/layers/0: no dump has layer 9; known layers: 0, 1, 4"});
  CHECK(faults(sweep(entry("exact", "\"x\": 1"), R"("select": {"tokens": 200})")) ==
        std::vector<std::string>{
            "quick.json: /algorithms/0/params/x: unknown parameter of exact; it has none",
            "quick.json: /select/tokens: must be at most 100, the tokens of sequence 0 of "
            "/dumps/a.h5, is 200"});
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
  CHECK(folder.messages([&] {
    make_plan(config, {planned_dump("a", 100, {0}, 1), planned_dump("b", 100, {0}, 1), copy});
  }) == std::vector<std::string>{"quick.json: /dumps: /dumps/a.h5 and /dumps/copy.h5 have the same "
                                 "content; list one of them"});
}

TEST_CASE("no dump drops out of a sweep unseen") {
  const SweepFolder folder;
  const SweepConfig config = folder.parse(with(R"("select": {"kv_heads": [2]})"));
  CHECK(folder.messages([&] {
    make_plan(config, {planned_dump("a", 100, {0}, 3), planned_dump("b", 100, {0}, 1)});
  }) == std::vector<std::string>{"quick.json: /select: leaves nothing of /dumps/b.h5; select some "
                                 "of it, or take it off the list of dumps"});
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

}  // namespace
}  // namespace kvbench::test
