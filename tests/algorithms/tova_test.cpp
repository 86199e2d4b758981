// tova: the tokens that the newest row attends to, against the rule written token by token.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_tova.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace tova_test {

Given tova(Index budget, const char* semantics = "released", const char* scope = "head") {
  return {
      {"budget", count_of(budget)}, {"semantics", word_of(semantics)}, {"scope", word_of(scope)}};
}

KeptSets kept(const Stream& stream, Index prompt, const Given& given) {
  return kept_by("tova", stream, prompt, given);
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 50, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
          {.tokens = 50, .d = 16, .dv = 2},
          {.tokens = 50, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
          {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 20},
          {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered},
          {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
          {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
          {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 22}};
}

TEST_CASE("tova, worked: the newest row ranks, its own token too, and old weights are forgotten") {
  // One dimension; a row's logit of token j is q k_j. Row 3 ends the prompt: q = 1 keeps the two
  // largest keys of 5 1 4 2, tokens 0 and 2. Row 4 (k 3, q -1) has 5 4 3 and drops the largest.
  // Row 5 (k 9, q 1) has 4 3 9 and drops 3. Row 6 (k 1, q 1) has 4 9 1 and drops its own token.
  const Rows keys = {{5}, {1}, {4}, {2}, {3}, {9}, {1}, {7}};
  const Rows queries = {{0}, {0}, {0}, {1}, {-1}, {1}, {1}, {1}};
  const auto owned = stream_of(keys, Rows(8, {1.0}), {queries});
  CHECK(kept(owned->stream, 4, tova(2)) == KeptSets{{0, 2, 4}, {2, 4, 5}, {2, 5, 6}, {2, 5, 7}});
  // Once: token 3 stays, next to it the best other one.
  CHECK(kept(owned->stream, 4, tova(2, "once")) ==
        KeptSets{{0, 3, 4}, {0, 3, 4, 5}, {0, 3, 4, 5, 6}, {0, 3, 4, 5, 6, 7}});
}

TEST_CASE("tova, worked: each query head's weights are normalised before they are averaged") {
  // Head 0 gives token 0 a logit of ln 3 and the others 0, head 1 gives token 1 one of ln 9: of
  // three tokens the weights are 3 1 1 over 5 and 1 9 1 over 11, and token 0 beats token 2 by
  // 0.69 to 0.29. Summed logits would rank them alike.
  const Rows keys = {{std::log(3.0), 0}, {0, std::log(9.0)}, {0, 0}, {0, 0}};
  const Rows first = {{0, 0}, {0, 0}, {1, 0}, {1, 0}};
  const Rows second = {{0, 0}, {0, 0}, {0, 1}, {0, 1}};
  const auto owned = stream_of(keys, Rows(4, {1.0}), {first, second});
  CHECK(kept(owned->stream, 3, tova(2)) == KeptSets{{0, 1, 3}});
  CHECK(kept(owned->stream, 3, tova(1)) == KeptSets{{1, 3}});
}

TEST_CASE("tova keeps what the rule token by token keeps") {
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 30, 49}) {
      for (const Index budget : {1, 7, 19, 30, 200}) {
        CAPTURE(spec.window);
        CAPTURE(prompt);
        CAPTURE(budget);
        CHECK(kept(owned->stream, prompt, tova(budget)) ==
              naive_tova({&owned->stream}, prompt, budget));
        CHECK(kept(owned->stream, prompt, tova(budget, "once")) ==
              naive_tova({&owned->stream}, prompt, budget, true));
        // A layer of one KV head.
        for (const char* semantics : {"released", "once"}) {
          CHECK(kept(owned->stream, prompt, tova(budget, semantics, "layer")) ==
                kept(owned->stream, prompt, tova(budget, semantics)));
        }
      }
    }
  }
}

TEST_CASE("with queries of 0 all weights tie: the oldest tokens stay and each new one goes") {
  const auto owned =
      make_stream({.tokens = 30, .d = 4, .dv = 2, .heads_per_kv = 2, .query_size = 0});
  const KeptSets sets = kept(owned->stream, 20, tova(5));
  for (std::size_t r = 0; r < sets.size(); ++r) {
    CHECK(sets[r] == std::vector<Index>{0, 1, 2, 3, 4, 20 + static_cast<Index>(r)});
  }
}

TEST_CASE("tova needs the query of the prompt's last row alone, and none where the prompt fits") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  shape.first_query = 39;
  CHECK(skip_of("tova", shape, 40, tova(8)).empty());
  CHECK(skip_of("tova", shape, 40, tova(8, "once")).empty());
  shape.first_query = 40;
  CHECK(skip_of("tova", shape, 40, tova(8)).find("rows 39 on") != std::string::npos);
  CHECK(skip_of("tova", shape, 40, tova(8, "once", "layer")).find("rows 39 on") !=
        std::string::npos);
  CHECK(skip_of("tova", shape, 40, tova(40)).empty());
  // Every decoded row ranks, unless nothing goes while decoding.
  shape.first_query = 41;
  CHECK(skip_of("tova", shape, 40, tova(40)).find("rows 40 on") != std::string::npos);
  CHECK(skip_of("tova", shape, 40, tova(40, "once")).empty());
  // Without the other rows the sets are the same.
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 2});
  const auto late = make_stream({.tokens = 60, .d = 4, .dv = 2, .first_query = 39});
  late->keys = owned->keys;
  late->queries[0].assign(owned->queries[0].begin() + 39 * 4, owned->queries[0].end());
  late->connect();
  CHECK(kept(late->stream, 40, tova(8)) == kept(owned->stream, 40, tova(8)));
}

TEST_CASE("scope layer keeps one set in all heads: what the rule over all of them keeps") {
  for (const Index window : {0, 20}) {
    std::vector<std::unique_ptr<OwnedStream>> heads;
    std::vector<const Stream*> streams;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      heads.push_back(make_stream({.tokens = 50,
                                   .d = 5,
                                   .dv = 2,
                                   .heads_per_kv = 2,
                                   .window = window,
                                   .seed = seed,
                                   .query_size = 3}));
      heads.back()->stream.id.kv_head = static_cast<int>(seed);
      streams.push_back(&heads.back()->stream);
    }
    for (const Index prompt : {0, 30, 49}) {
      for (const Index budget : {1, 7, 200}) {
        for (const bool once : {false, true}) {
          CAPTURE(window);
          CAPTURE(prompt);
          CAPTURE(budget);
          CAPTURE(once);
          const Given given = tova(budget, once ? "once" : "released", "layer");
          const KeptSets expected = naive_tova(streams, prompt, budget, once);
          for (const auto& kept : kept_in_scope("tova", streams, prompt, given)) {
            CHECK(kept == expected);
          }
          // Another set than a head's own.
          if (budget == 7 && prompt == 30) {
            CHECK(expected != naive_tova({streams[0]}, prompt, budget, once));
          }
        }
      }
    }
  }
}

TEST_CASE("the layer's trace does not depend on the order of its heads' streams in memory") {
  const auto a = make_stream({.tokens = 40, .d = 5, .dv = 2, .seed = 1, .query_size = 3});
  const auto b = make_stream({.tokens = 40, .d = 5, .dv = 2, .seed = 2, .query_size = 3});
  const Given given = tova(6, "released", "layer");
  CHECK(kept_in_scope("tova", {&a->stream, &b->stream}, 20, given) ==
        kept_in_scope("tova", {&b->stream, &a->stream}, 20, given));
}

}  // namespace tova_test
}  // namespace kvbench::test
