// Compositions: a reading method over what another one kept at the end of the prompt.
#include "algorithms/composition.hpp"

#include <doctest/doctest.h>

#include <set>

#include "support/equal_reports.hpp"
#include "support/made_codecs.hpp"
#include "support/naive_metrics.hpp"
#include "support/naive_observation_window.hpp"
#include "support/owned_stream.hpp"
#include "support/reading_checks.hpp"
#include "support/replayed.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace composition_test {

std::shared_ptr<const AlgorithmDescription> pair_of(const std::string& first,
                                                    const std::string& reader) {
  return composition(algorithm_named(first), algorithm_named(reader));
}

// Parameters of both, those of the second without their prefix.
Given both(const Given& first, const Given& reader) {
  Given all = first;
  for (const auto& [name, value] : reader) all.emplace_back(kThen + name, value);
  return all;
}

Given snapkv(Index budget, Index window, Index kernel) {
  return {{"budget", count_of(budget)}, {"window", count_of(window)}, {"kernel", count_of(kernel)}};
}

// The stream without the tokens of the prompt that are not in `kept`.
std::unique_ptr<OwnedStream> without_others(const Stream& all, Index prompt,
                                            const std::vector<Index>& kept) {
  std::vector<Index> tokens = kept;
  for (Index token = prompt; token < all.shape.tokens; ++token) tokens.push_back(token);
  auto owned = std::make_unique<OwnedStream>();
  owned->stream.id = all.id;
  owned->stream.shape = all.shape;
  owned->stream.shape.tokens = std::ssize(tokens);
  owned->queries.resize(all.queries.size());
  for (const Index token : tokens) {
    const auto append = [](const double* from, Index width, std::vector<double>& to) {
      to.insert(to.end(), from, from + width);
    };
    append(all.keys.row(token), all.shape.d, owned->keys);
    append(all.values.row(token), all.shape.dv, owned->values);
    for (std::size_t g = 0; g < all.queries.size(); ++g) {
      append(all.query(static_cast<int>(g), token), all.shape.d, owned->queries[g]);
    }
  }
  owned->connect();
  return owned;
}

void check_pair(const AlgorithmDescription& pair, const Stream& stream, Index prompt,
                const Given& given, const Answers& expected) {
  const auto all = sketches(stream, prompt, pair, params_for(pair, given));
  REQUIRE(all.size() == expected.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Index row = prompt + static_cast<Index>(r);
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      CAPTURE(row);
      CAPTURE(g);
      const Answer answer = library_answer(stream, g, row, all[r]);
      for (std::size_t c = 0; c < answer.answer.size(); ++c) {
        const double naive = expected[r][g][c];
        CHECK(std::fabs(answer.answer[c] - naive) <= 1e-12 * (1.0 + std::fabs(naive)));
      }
    }
  }
}

void check_same_bits(const CellResult& a, const CellResult& b) {
  for (const NamedPair& pair : paired_metrics(a.metrics, b.metrics)) {
    CAPTURE(pair.path);
    CHECK((pair.a == pair.b || (std::isnan(pair.a) && std::isnan(pair.b))));
  }
  check_equal(a.memory, b.memory);
  check_equal(a.traffic, b.traffic);
}

TEST_CASE("worked: pages are of the tokens that were kept, memory and traffic of these alone") {
  // knorm keeps the tokens 1, 3 and 4 of five; the row's own is 5. Pages of two: (1, 3), (4, 5).
  // Query (1, -1): largest x less least y of a page, 1 - 0 and 2 - 0.
  const Rows keys = {{9, 0}, {1, 0}, {8, 8}, {0, 2}, {2, 1}, {0, 0}};
  const auto owned = stream_of(keys, Rows(6, {1.0}), {Rows(6, {1, -1})});
  const auto pair = pair_of("knorm", "hsa");
  CHECK(pair->id == "knorm+hsa");
  const auto given = [](Index budget) {
    return both({{"budget", count_of(3)}, {"sinks", count_of(0)}, {"recent", count_of(0)}},
                {{"budget", count_of(budget)}, {"page", count_of(2)}, {"rank", count_of(2)}});
  };
  const auto kept = [&](Index budget) {
    return kept_sets(sketches(owned->stream, 5, *pair, params_for(*pair, given(budget))));
  };
  CHECK(kept(2) == KeptSets{{4, 5}});
  CHECK(kept(3) == KeptSets{{1, 4, 5}});
  CHECK(kept(9) == KeptSets{{1, 3, 4, 5}});
  const CellResult cell = replay_one(owned->stream, 5, *pair, params_for(*pair, given(3)));
  // Four tokens of 2 + 1 numbers, and least and largest keys of two pages.
  CHECK(cell.memory.lookup_bytes == 2 * 2 * 2 * 2);
  CHECK(cell.memory.bytes == 4 * 3 * 2 + 16);
  CHECK(cell.memory.exact_bytes == 6 * 3 * 2);
  CHECK(cell.memory.tokens == 3);
  CHECK(cell.traffic.tokens_read_mean == 3);
  CHECK(cell.traffic.bytes_read_mean == (3 * 3 + 2 * 2) * 2);
  // A fraction is one of the three tokens that the prompt has left.
  const Given half =
      both({{"budget", count_of(3)}, {"sinks", count_of(0)}, {"recent", count_of(0)}},
           {{"budget", number(0.7)}, {"page", count_of(2)}, {"rank", count_of(2)}});
  CHECK(kept_sets(sketches(owned->stream, 5, *pair, params_for(*pair, half))) == KeptSets{{4, 5}});
}

TEST_CASE("answers are those of a plain program that evicts, and then reads what is left") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 70, .d = 6, .dv = 3, .heads_per_kv = 1},
      {.tokens = 70, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 70, .d = 5, .dv = 2, .heads_per_kv = 2, .softcap = 1.0, .query_size = 2}};
  const Index prompt = 52;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    for (const Index budget : {9, 20, 51}) {
      const NaiveObservation rule{.window = 6, .kernel = 5};
      const std::vector<Index> tokens = naive_observation_kept(
          stream, prompt, 6, naive_observed(stream, prompt, rule), budget - 6);
      REQUIRE(std::ssize(tokens) == budget);
      const auto left = without_others(stream, prompt, tokens);
      const Given first = snapkv(budget, 6, 5);
      for (const Index read : {1, 7, 90}) {
        CAPTURE(budget);
        CAPTURE(read);
        check_pair(*pair_of("snapkv", "quest"), stream, prompt,
                   both(first, {{"budget", count_of(read)}, {"page", count_of(4)}}),
                   naive_quest(left->stream, budget, {read, 4}));
        check_pair(
            *pair_of("snapkv", "hsa"), stream, prompt,
            both(first, {{"budget", count_of(read)}, {"page", count_of(3)}, {"rank", count_of(2)}}),
            naive_hsa(left->stream, budget, {read, 3, 2}));
        check_pair(
            *pair_of("snapkv", "sparq"), stream, prompt,
            both(first, {{"rank", count_of(2)}, {"k", count_of(read)}, {"recent", count_of(1)}}),
            naive_sparq(left->stream, budget, {2, read, 1}));
        check_pair(*pair_of("snapkv", "loki"), stream, prompt,
                   both(first, {{"budget", count_of(read)}, {"rank", count_of(2)}}),
                   naive_loki(left->stream, budget, {read, 2}));
        check_pair(*pair_of("snapkv", "loki"), stream, prompt,
                   both(first, {{"budget", count_of(read)},
                                {"rank", count_of(2)},
                                {"basis", word_of("channels")}}),
                   naive_loki(left->stream, budget, {read, 2, "channels"}));
      }
    }
  }
}

TEST_CASE("codecs write what was kept: all read, bytes and errors are the first method's alone") {
  const auto owned = make_stream({.tokens = 60, .d = 8, .dv = 8, .heads_per_kv = 2, .seed = 5});
  const Index prompt = 41;
  const auto pair = pair_of("snapkv", "oracle_topk");
  const AlgorithmDescription& alone = algorithm_named("snapkv");
  const Given first = snapkv(13, 4, 3);
  const CodecDescription at_once = step_codec(0.5, 1, 3, on_arrival());
  const CodecDescription later = step_codec(0.5, 1, 3, late(5));
  const CodecDescription groups = step_codec(0.5, 4, 3, late(5));
  for (const CodecDescription* codec : {&at_once, &later, &groups}) {
    const auto storage =
        std::make_shared<const Storage>(Storage{{codec, Params{}}, {codec, Params{}}});
    const auto stored = [&](const AlgorithmDescription& algorithm, const Given& given) {
      const Params params = params_for(algorithm, given);
      CHECK_FALSE(reason_to_skip(*storage, algorithm, params, owned->stream.shape, prompt));
      CellResult out;
      replay(owned->stream, {.prompt = prompt, .rows = decode_rows(owned->stream, prompt)},
             {{&algorithm, params, 0, nullptr, nullptr, storage}}, cpu_kernels(),
             [&](std::size_t, CellResult&& result) { out = std::move(result); });
      REQUIRE_MESSAGE(!out.failed, out.reason);
      return out;
    };
    const CellResult a = stored(*pair, both(first, {{"budget", count_of(100)}}));
    CHECK(a.metrics["errors.key_error"].value() > 0.0);
    check_same_bits(a, stored(alone, first));
    // Fewer tokens that are read change what is read, and not what is held.
    const CellResult few = stored(*pair, both(first, {{"budget", count_of(3)}}));
    CHECK(few.memory.bytes == a.memory.bytes);
    CHECK(few.metrics["errors.key_error"].value() == a.metrics["errors.key_error"].value());
    CHECK(few.traffic.bytes_read_mean < a.traffic.bytes_read_mean);
  }
}

TEST_CASE("numbers that the first method stores are part of the memory") {
  // qfilters keeps a filter per KV head besides the cache: shared numbers.
  const auto owned = make_stream({.tokens = 50, .d = 6, .dv = 4});
  const Given first = {{"budget", count_of(12)}, {"sinks", count_of(2)}, {"recent", count_of(2)}};
  const AlgorithmDescription& alone = algorithm_named("qfilters");
  const auto pair = pair_of("qfilters", "quest");
  const CellResult a = replay_one(owned->stream, 40, alone, params_for(alone, first));
  const CellResult b = replay_one(owned->stream, 40, *pair,
                                  params_for(*pair, both(first, {{"budget", count_of(4)}})));
  CHECK(b.memory.shared_bytes == a.memory.shared_bytes);
  // 12 + 10 tokens in pages of 16.
  CHECK(b.memory.bytes == a.memory.bytes + 2 * 2 * 6 * 2);
}

TEST_CASE("seeds matter if they do to one of both") {
  const Given budget = {{"budget", count_of(9)}};
  const auto random = [](const char* first, const char* reader, const Given& given) {
    const auto pair = pair_of(first, reader);
    return pair->randomised(params_for(*pair, given));
  };
  CHECK(random("snapkv", "magicpig", budget));
  CHECK(random(
      "uniform", "quest",
      {{"budget", count_of(9)}, {"weights", word_of("none")}, {"then.budget", count_of(4)}}));
  CHECK_FALSE(random("snapkv", "quest", both(budget, budget)));
}

TEST_CASE("a pair is skipped where one of both is, and where tokens leave a window") {
  const auto pair = pair_of("snapkv", "sparq");
  const auto why = [&](const StreamShape& shape, const Given& first, const Given& reader) {
    const Params params = params_for(*pair, both(first, reader));
    return reason_to_skip(*pair, params, shape, 30).value_or("");
  };
  StreamShape shape;
  shape.tokens = 40;
  shape.d = shape.dv = 4;
  const Given reader = {{"rank", count_of(2)}, {"k", count_of(8)}, {"recent", count_of(2)}};
  CHECK(why(shape, snapkv(12, 4, 3), reader).empty());
  CHECK(why(shape, snapkv(3, 4, 3), reader).find("budget") != std::string::npos);
  const std::string wide = why(shape, snapkv(12, 4, 3), {{"rank", count_of(9)}});
  CHECK(wide.starts_with("sparq over what snapkv kept: rank 9"));
  shape.window = 12;
  CHECK(why(shape, snapkv(12, 4, 3), reader).find("12 of 40 tokens") != std::string::npos);
  shape.window = 0;
  shape.causal = false;
  CHECK(why(shape, snapkv(12, 4, 3), reader).find("every row") != std::string::npos);
  shape.causal = true;
  shape.alibi = true;
  CHECK(why(shape, snapkv(12, 4, 3), reader).find("ALiBi") != std::string::npos);
}

TEST_CASE("what the data decide fails the cell with the reason") {
  const auto owned = make_stream({.tokens = 40, .d = 4, .dv = 4});
  AlgorithmDescription none = algorithm_named("exact");
  none.id = "none";
  none.create = [](const Params&, const CellContext&) {
    struct KeepsNothing final : Algorithm {
      void extend(Index, Index) override {}
    };
    return std::make_unique<KeepsNothing>();
  };
  const auto pair = composition(none, algorithm_named("quest"));
  CHECK_THROWS_WITH_AS(
      sketches(owned->stream, 30, *pair, params_for(*pair, {{"then.budget", number(0.5)}})),
      doctest::Contains("quest over what none kept: budget"), CellError);
}

}  // namespace composition_test
}  // namespace kvbench::test
