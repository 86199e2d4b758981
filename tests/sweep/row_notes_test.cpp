#include "sweep/row_notes.hpp"

#include <doctest/doctest.h>

#include "sweep/make_plan.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace row_notes_test {

using Notes = std::vector<std::string>;

// The notes for a dump of 100 tokens with that many queries, of which the last 30 are decoded.
Notes notes_of(const std::string& rows, Index query_rows = 0, bool causal = true) {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0, 1}, 2, query_rows);
  for (PlannedLayer& layer : dump.sequences[0].layers) layer.shape.causal = causal;
  return notes_of_rows(make_plan(
      folder.parse(sweep(entry("window", R"("budget": 8)"),
                         R"("replay": {"prompt_tokens": 70}, "evaluate": {"rows": )" + rows + "}")),
      {dump}));
}

TEST_CASE("fewer decode rows than are asked for") {
  CHECK(notes_of(R"({"last": 30})").empty());
  CHECK(notes_of(R"({"last": 31})") ==
        Notes{"/evaluate/rows/last: 31 rows are asked for, and 2 of 2 groups have fewer; first "
              "sequence 0, layer 0 of /dumps/a.h5, of which 30 are scored: it has 30 after its "
              "prompt of 70"});
}

TEST_CASE("fewer rows of the prompt than are asked for") {
  CHECK(notes_of(R"({"prompt": {"last": 70}})").empty());
  CHECK(notes_of(R"({"prompt": {"last": 71}})") ==
        Notes{"/evaluate/rows/prompt/last: 71 rows are asked for, and 2 of 2 groups have fewer; "
              "first sequence 0, layer 0 of /dumps/a.h5, of which 70 are scored: its prompt has "
              "70"});
  CHECK(notes_of(R"({"prompt": {"last": 50}})", 80).empty());
  CHECK(notes_of(R"({"prompt": {"last": 51}})", 80) ==
        Notes{"/evaluate/rows/prompt/last: 51 rows are asked for, and 2 of 2 groups have fewer; "
              "first sequence 0, layer 0 of /dumps/a.h5, of which 50 are scored: the dump has "
              "queries only from row 20 on"});
}

TEST_CASE("where every row sees every token, all rows are meant") {
  for (const bool of_prompt : {false, true}) {
    const auto last = [&](const std::string& count) {
      const std::string form = R"({"last": )" + count + "}";
      return notes_of(of_prompt ? "{\"prompt\": " + form + "}" : form, 0, false);
    };
    CHECK(last("100").empty());
    REQUIRE(last("101").size() == 1);
    CHECK(last("101")[0].find("of which 100 are scored: it has 100 tokens") != std::string::npos);
  }
}

TEST_CASE("evidence after its row") {
  const auto notes = [](std::vector<Index> rows, Index last, bool causal = true) {
    const SweepFolder folder;
    PlannedDump dump = planned_dump("a", 100, {0, 1}, 2);
    for (PlannedLayer& layer : dump.sequences[0].layers) layer.shape.causal = causal;
    dump.sequences[0].evidence =
        std::make_shared<const Evidence>(Evidence{{{3, 4}, {last - 1, last}}, std::move(rows)});
    return notes_of_evidence(make_plan(folder.parse(sweep(entry("window", R"("budget": 8)"),
                                                          R"("replay": {"prompt_tokens": 70})")),
                                       {dump}));
  };
  CHECK(notes({80, 90}, 80).empty());
  CHECK(notes({60, 90}, 80).empty());  // row 60 is not scored
  CHECK(notes({80, 90}, 91, false).empty());
  CHECK(notes({80, 92}, 81) ==
        Notes{"row 80 of sequence 0 of /dumps/a.h5 does not see its evidence up to token 81, and "
              "no method holds what follows a row; check the evidence of the dump"});
}

TEST_CASE("other forms ask for what there is") {
  for (const char* rows : {R"("all")", R"({"every": 90})", "[99]", R"({"prompt": "all"})",
                           R"({"prompt": {"every": 90}})", R"({"prompt": [0]})"}) {
    CHECK(notes_of(rows).empty());
  }
}

}  // namespace row_notes_test
}  // namespace kvbench::test
