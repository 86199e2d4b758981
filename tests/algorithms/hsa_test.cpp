// hsa: per row and KV head, the best tokens by channels of the query and bounds of pages of keys.
#include <doctest/doctest.h>

#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace hsa_test {

Given hsa(Index budget, Index page, Index rank) {
  return {{"budget", count_of(budget)}, {"page", count_of(page)}, {"rank", count_of(rank)}};
}

TEST_CASE("worked: three pages of two tokens, one channel of two") {
  // Channel 0 of the keys: pages (1, 5), (4, 4), (0, 0). The query's larger channel is 0.
  const Rows keys = {{1, 7}, {5, 0}, {4, 9}, {4, 0}, {0, 0}, {0, 8}};
  const Rows values(6, {1.0});
  // q_0 = 2: largest entries 5, 4, 0. The second page has one of its tokens, the earlier.
  const auto up = stream_of(keys, values, {Rows(6, {2, 1})});
  CHECK(kept_by("hsa", up->stream, 5, hsa(3, 2, 1)) == KeptSets{{0, 1, 2}});
  // q_0 = -2: least entries 1, 4, 0 with scores -2, -8, 0.
  const auto down = stream_of(keys, values, {Rows(6, {-2, 1})});
  CHECK(kept_by("hsa", down->stream, 5, hsa(3, 2, 1)) == KeptSets{{0, 4, 5}});
  // The sum of both queries decides which entry all heads take: 2 - 1 > 0, largest entries. Scores
  // (10, 8, 0) and (-5, -4, 0): of the second head's share page 2 has most, e^4 / (e^4 + 1 + ..).
  const auto both = stream_of(keys, values, {Rows(6, {2, 0}), Rows(6, {-1, 0})});
  CHECK(kept_by("hsa", both->stream, 5, hsa(4, 2, 1)) == KeptSets{{0, 1, 4, 5}});
  // The row's own page ends with it: at row 4 its largest entry is that of token 4 alone.
  CHECK(kept_by("hsa", up->stream, 4, hsa(5, 2, 1)).front() == std::vector<Index>{0, 1, 2, 3, 4});
}

TEST_CASE("answers are those of a plain program") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 1},
      {.tokens = 40, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 40, .d = 3, .dv = 2, .heads_per_kv = 2, .softcap = 1.0, .query_size = 2}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index rank : {Index{1}, Index{2}, spec.d}) {
      for (const Index page : {1, 3, 4, 50}) {
        for (const Index budget : {1, 8, 60}) {
          for (const Index prompt : {0, 25}) {
            CAPTURE(rank);
            CAPTURE(page);
            CAPTURE(budget);
            check_answers("hsa", owned->stream, prompt, hsa(budget, page, rank),
                          naive_hsa(owned->stream, prompt, {budget, page, rank}));
          }
        }
      }
    }
  }
}

TEST_CASE("by every channel, in pages of one token, a single query head reads its best tokens") {
  const auto owned = make_stream({.tokens = 60, .d = 5, .dv = 3, .query_size = 2});
  CHECK(kept_by("hsa", owned->stream, 20, hsa(9, 1, 5)) ==
        kept_by("oracle_topk", owned->stream, 20, {{"budget", count_of(9)}}));
}

TEST_CASE("memory has the bounds of every page besides all tokens; traffic what a row reads") {
  // 24 tokens of 4 + 2 numbers; the last of 5 pages has 4 tokens.
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 2, .heads_per_kv = 1});
  const AlgorithmDescription& algorithm = algorithm_named("hsa");
  const CellResult pages =
      replay_one(owned->stream, 23, algorithm, params_for(algorithm, hsa(7, 5, 3)));
  CHECK(pages.memory.lookup_bytes == 5 * 2 * 4 * 2);
  CHECK(pages.memory.bytes == 24 * 6 * 2 + 80);
  CHECK(pages.traffic.tokens_read_mean == 7);
  CHECK(pages.traffic.bytes_read_mean == (7 * 6 + 5 * 3) * 2);
  const CellResult keys =
      replay_one(owned->stream, 23, algorithm, params_for(algorithm, hsa(7, 1, 3)));
  CHECK(keys.memory.bytes == (24 * 6 + 24 * 4) * 2);
  CHECK(keys.traffic.bytes_read_mean == (7 * 6 + 24 * 3) * 2);
}

TEST_CASE("more channels than a key has and a sliding layer are skipped with the reason") {
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  CHECK(skip_of("hsa", shape, 20, hsa(8, 4, 4)).empty());
  CHECK(skip_of("hsa", shape, 20, hsa(8, 4, 5)).find("4 channels") != std::string::npos);
  shape.window = 10;
  CHECK(skip_of("hsa", shape, 20, hsa(8, 4, 4)).find("sliding window of 10") != std::string::npos);
}

}  // namespace hsa_test
}  // namespace kvbench::test
