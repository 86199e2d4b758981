// given: the rows of a cache, from when to when they are kept, and what they count for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "support/algorithm_named.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace given_test {

Params of_rows(KeptRows kept) {
  Params params;
  const auto cache = std::make_shared<KeptCache>();
  cache->method = "mine";
  cache->read = [kept = std::move(kept)](const StreamId&) { return kept; };
  params.set("file", CacheParameter{"mine.h5", cache});
  return params;
}

KeptRow row_of(std::int32_t token, Index begin = 0, Index end = KeptRow::kToTheEnd) {
  KeptRow row;
  row.token = token;
  row.begin = begin;
  row.end = end;
  return row;
}

using KeptSets = std::vector<std::vector<Index>>;

KeptSets sets_of(const Stream& stream, Index prompt, const KeptRows& kept) {
  return kept_sets(sketches(stream, prompt, algorithm_named("given"), of_rows(kept)));
}

TEST_CASE("worked: rows live from begin to end, and decode tokens are appended unless given") {
  const auto owned = make_stream({.tokens = 8, .d = 2, .dv = 2});
  KeptRows kept;
  kept.rows = {row_of(0, 4), row_of(2, 5, 7), row_of(1, 4, 5), row_of(3, 6, 6)};
  CHECK(sets_of(owned->stream, 4, kept) ==
        KeptSets{{0, 1, 4}, {0, 2, 4, 5}, {0, 2, 4, 5, 6}, {0, 4, 5, 6, 7}});
  kept.appends = false;
  CHECK(sets_of(owned->stream, 4, kept) == KeptSets{{0, 1}, {0, 2}, {0, 2}, {0}});
}

TEST_CASE("worked: what leaves the sliding window goes, and what is not there yet waits") {
  const auto owned = make_stream({.tokens = 8, .d = 2, .dv = 2, .window = 3});
  KeptRows kept;
  kept.rows = {row_of(0, 3), row_of(2, 3), row_of(1, 5)};
  // Row i sees tokens i - 2 to i.
  CHECK(sets_of(owned->stream, 3, kept) ==
        KeptSets{{2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}, {5, 6, 7}});
  KeptRows future;
  future.appends = false;
  future.reads_future = true;
  future.rows = {row_of(5, 3), row_of(2, 3), row_of(7, 3)};
  CHECK(sets_of(owned->stream, 3, future) == KeptSets{{2}, {2}, {5}, {5}, {5, 7}});
}

TEST_CASE("answers are the formula's: weights, own keys and values, one query head") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 3, .heads_per_kv = 2});
  const Stream& stream = owned->stream;
  KeptRows kept;
  kept.rows = {row_of(-1, 20), row_of(3, 20), row_of(5, 22, 27)};
  kept.rows[0].w_num = 2.0;
  kept.rows[1].head = 1;
  kept.rows[2].head = 0;
  for (int i = 0; i < 3 * 4; ++i) kept.keys.push_back(0.3 * i - 1.0);
  for (int i = 0; i < 3 * 3; ++i) kept.values.push_back(1.0 - 0.2 * i);
  const AlgorithmDescription& given = algorithm_named("given");
  const CellResult result = replay_one(stream, 20, given, of_rows(kept));
  Stepper stepper(stream, 20, given, of_rows(kept));
  const auto& columns = result.row_values->columns;
  std::size_t r = 0;
  while (stepper.next()) {
    for (int g = 0; g < 2; ++g) {
      const NaiveAnswer naive = naive_answer(stream, g, stepper.row(), stepper.sketch());
      const NaiveRow exact = naive_row(stream, g, stepper.row());
      Real error = 0, norm = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        error += (naive.z[k] - exact.a[k]) * (naive.z[k] - exact.a[k]);
        norm += exact.a[k] * exact.a[k];
      }
      const auto expected = static_cast<double>(std::sqrt(error / norm));
      CHECK(columns[0][static_cast<std::size_t>(g) * 10 + r] ==
            doctest::Approx(expected).epsilon(1e-12));
    }
    ++r;
  }
  CHECK(r == 10);
}

TEST_CASE("memory: what the rows store, or what the method says they do") {
  const auto owned = make_stream({.tokens = 10, .d = 4, .dv = 6});
  KeptRows kept;
  kept.rows = {row_of(0, 8), row_of(1, 8), row_of(2, 9)};
  kept.rows[0].copies = 3;
  kept.rows[0].weight_numbers = 1;
  kept.rows[1].keeps_value = false;
  kept.rows[1].counts_as_token = false;
  const AlgorithmDescription& given = algorithm_named("given");
  const auto memory = [&] { return replay_one(owned->stream, 8, given, of_rows(kept)).memory; };
  // At row 9: three copies, a key alone, a token, and two appended tokens.
  CHECK(memory().tokens == 3 + 1 + 2);
  CHECK(memory().vectors == (3 + 1 + 1 + 2) + (3 + 1 + 2));
  CHECK(memory().bookkeeping == 3);
  CHECK(memory().bytes == 2 * (7 * 4 + 6 * 6) + 4 * 3);
  CHECK_FALSE(memory().declared);
  kept.further_numbers = {5, 7};
  CHECK(memory().bookkeeping == 3 + 7);
  kept.further_numbers.clear();
  kept.bytes = 100;
  CHECK(memory().declared);
  CHECK(memory().bytes == 100 + 2 * (2 * 4 + 2 * 6));
}

TEST_CASE("memory: a row that repeats its token's vectors is one vector where values lie in keys") {
  const auto owned = make_stream({.tokens = 10, .d = 4, .dv = 3, .value_in_key = true});
  const Stream& stream = owned->stream;
  KeptRows kept;
  kept.rows = {row_of(0, 8), row_of(1, 8), row_of(-1, 8)};
  for (const KeptRow& row : kept.rows) {
    const double* key = stream.keys.row(std::max(row.token, 0));
    kept.keys.insert(kept.keys.end(), key, key + 4);
    kept.values.insert(kept.values.end(), key, key + 3);
  }
  kept.values[3] += 1.0;  // token 1
  const auto memory = replay_one(stream, 8, algorithm_named("given"), of_rows(kept)).memory;
  // Three keys and two values besides, and the keys of two appended tokens.
  CHECK(memory.bytes == 2 * (3 * 4 + 2 * 3 + 2 * 4));
  kept.keys.clear();
  kept.rows.pop_back();
  kept.values.resize(2 * 3);
  const auto of_values = replay_one(stream, 8, algorithm_named("given"), of_rows(kept)).memory;
  CHECK(of_values.bytes == 2 * (2 * 4 + 1 * 3 + 2 * 4));
}

TEST_CASE("a cache of another stream does not fit, or has nothing of it") {
  const AlgorithmDescription& given = algorithm_named("given");
  const auto cache = std::make_shared<KeptCache>();
  cache->heads = {{.sequence = "a",
                   .layer = 1,
                   .kv_head = 2,
                   .prompt = 5,
                   .tokens = 9,
                   .rows = 1,
                   .d = 4,
                   .dv = 6,
                   .least_tokens = 7,
                   .query_heads = 2}};
  Params params;
  params.set("file", CacheParameter{"x.h5", cache});
  StreamShape shape;
  shape.tokens = 9;
  shape.d = 4;
  shape.dv = 6;
  shape.heads_per_kv = 2;
  const auto kind = [&](const StreamId& id, const StreamShape& of, Index prompt) {
    const auto found = given.misfit(params, id, of, prompt);
    return found ? std::optional(found->kind) : std::nullopt;
  };
  const StreamId id{"a", 1, 2};
  CHECK_FALSE(kind(id, shape, 5));
  for (const StreamId& other : {StreamId{"b", 1, 2}, StreamId{"a", 0, 2}, StreamId{"a", 1, 1}}) {
    CHECK(kind(other, shape, 5) == Misfit::Kind::kSkip);
  }
  CHECK(kind(id, shape, 4) == Misfit::Kind::kError);
  for (const auto& change :
       {+[](StreamShape& s) { s.tokens = 8; }, +[](StreamShape& s) { s.d = 3; },
        +[](StreamShape& s) { s.dv = 5; }, +[](StreamShape& s) { s.heads_per_kv = 1; }}) {
    StreamShape other = shape;
    change(other);
    CHECK(kind(id, other, 5) == Misfit::Kind::kError);
  }
}

}  // namespace given_test
}  // namespace kvbench::test
