// quest: per row and query head, the pages of largest bound.
#include <doctest/doctest.h>

#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace quest_test {

Given quest(Index budget, Index page, const char* semantics = "evaluation",
            const char* share = "head") {
  return {{"budget", count_of(budget)},
          {"page", count_of(page)},
          {"semantics", word_of(semantics)},
          {"share", word_of(share)}};
}

TEST_CASE("worked: three of five pages of two tokens, by bounds that no token reaches") {
  // Keys (x, y); the query (1, -1). Bounds: largest x less smallest y of a page.
  //   page 0: (0,0) (1,1)   1 - 0 = 1      page 1: (5,5) (0,-1)  5 + 1 = 6
  //   page 2: (1,0) (1,0)   1              page 3: (0,4) (0,4)  -4
  //   page 4: (3,1)         3 - 1 = 2
  const Rows keys = {{0, 0}, {1, 1}, {5, 5}, {0, -1}, {1, 0}, {1, 0}, {0, 4}, {0, 4}, {3, 1}};
  const auto owned = stream_of(keys, Rows(9, {1.0}), {Rows(9, {1, -1})});
  // At least three pages whatever the budget; pages 0 and 2 tie and the earlier is read.
  CHECK(kept_by("quest", owned->stream, 8, quest(2, 2)) == KeptSets{{0, 1, 2, 3, 8}});
  CHECK(kept_by("quest", owned->stream, 8, quest(8, 2)) == KeptSets{{0, 1, 2, 3, 4, 5, 8}});
  CHECK(kept_by("quest", owned->stream, 8, quest(4, 2, "kernel")) == KeptSets{{2, 3, 8}});
  CHECK(kept_by("quest", owned->stream, 8, quest(2, 2, "kernel")) == KeptSets{{8}});
  // Row 7 has the pages 0 to 3: without privilege, the own page is left out.
  CHECK(kept_by("quest", owned->stream, 7, quest(6, 2)).front() ==
        std::vector<Index>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("answers are those of a plain program") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 6, .dv = 3, .heads_per_kv = 1},
      {.tokens = 50, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 50, .d = 3, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kTies},
      {.tokens = 50, .d = 3, .dv = 2, .heads_per_kv = 2, .softcap = 1.0, .query_size = 2}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index page : {1, 4, 7, 60}) {
      for (const Index budget : {1, 14, 30, 70}) {
        for (const bool kernel : {false, true}) {
          for (const bool group : {false, true}) {
            for (const Index prompt : {0, 31}) {
              CAPTURE(page);
              CAPTURE(budget);
              CAPTURE(kernel);
              CAPTURE(group);
              check_answers(
                  "quest", owned->stream, prompt,
                  quest(budget, page, kernel ? "kernel" : "evaluation", group ? "group" : "head"),
                  naive_quest(owned->stream, prompt, {budget, page, kernel, group}));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("memory has the bounds of every page besides all tokens; traffic what a row reads") {
  // 24 tokens of 4 + 2 numbers in pages of 5; the last of 5 pages has 4 tokens.
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const AlgorithmDescription& algorithm = algorithm_named("quest");
  const CellResult cell =
      replay_one(owned->stream, 23, algorithm, params_for(algorithm, quest(10, 5, "kernel")));
  CHECK(cell.memory.lookup_bytes == 5 * 2 * 4 * 2);
  CHECK(cell.memory.bytes == 24 * 6 * 2 + 80);
  CHECK(cell.traffic.tokens_read_mean == 9);
  CHECK(cell.traffic.bytes_read_mean == 9 * 6 * 2 + 80);
  CHECK(cell.traffic.density == doctest::Approx(9.0 / 24));
}

TEST_CASE("a sliding layer is skipped with the reason") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  CHECK(skip_of("quest", shape, 20, quest(8, 4)).empty());
  shape.window = 10;
  CHECK(skip_of("quest", shape, 20, quest(8, 4)).find("sliding window of 10") != std::string::npos);
}

}  // namespace quest_test
}  // namespace kvbench::test
