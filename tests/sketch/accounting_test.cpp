// A sketch counts what it holds while rows come and go.
#include <doctest/doctest.h>

#include <random>
#include <set>

#include "sketch/sketch.hpp"
#include "support/owned_stream.hpp"
#include "support/random_sketch.hpp"

namespace kvbench::test {
namespace accounting_test {

KeptCounts recount(const Sketch& sketch) {
  KeptCounts kept;
  kept.bookkeeping = sketch.bookkeeping;
  for (const SketchRow& row : sketch.rows()) {
    if (row.is_empty()) continue;
    if (row.counts_as_token) kept.tokens += row.copies;
    if (row.keeps_key) kept.keys += row.copies;
    if (row.keeps_value) kept.values += row.copies;
    const bool is_own = row.own_key < 0 && row.own_value < 0;
    if (is_own && row.keeps_key && row.keeps_value) kept.pairs += row.copies;
    kept.bookkeeping += row.copies * row.weight_numbers;
  }
  if (sketch.answer_rule) {
    kept.bookkeeping += static_cast<Index>(2 * sketch.answer_rule->low.size());
  }
  return kept;
}

Index recount_distinct(const Sketch& sketch) {
  std::set<std::int32_t> tokens;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) tokens.insert(row.token);
  }
  return std::ssize(tokens);
}

TEST_CASE("holdings equal a recount after every change") {
  const auto owned = make_stream({.tokens = 30});
  for (const SketchKind kind : kAllSketchKinds) {
    Sketch sketch = random_sketch(owned->stream, 29, kind, 5);
    CHECK(sketch.kept_counts() == recount(sketch));
    CHECK(distinct_tokens(sketch) == recount_distinct(sketch));
    std::mt19937_64 rng(3);
    for (int change = 0; change < 60; ++change) {
      const auto position = [&] {
        return static_cast<Index>(rng() % static_cast<std::uint64_t>(sketch.size()));
      };
      const std::uint64_t what = rng() % 5;
      if (sketch.size() == 0 || what == 0) {
        sketch.add(SketchRow::exact(static_cast<Index>(rng() % 30)));
      } else if (what == 1) {
        SketchRow row;
        row.token = rng() % 3 == 0 ? -1 : 7;
        row.keeps_value = rng() % 2 == 0;
        row.weight_numbers = 1;
        row.copies = static_cast<std::int32_t>(rng() % 3);
        sketch.replace(position(), row);
      } else if (what == 2) {
        sketch.erase(position());
      } else if (what == 3) {
        sketch.set_weights(position(), 2.0, 3.0);
      } else {
        const Index first = position();
        sketch.erase(first, std::min(sketch.size(), first + 2));
      }
      REQUIRE(sketch.kept_counts() == recount(sketch));
      REQUIRE(distinct_tokens(sketch) == recount_distinct(sketch));
    }
    sketch.clear();
    CHECK(sketch.size() == 0);
    CHECK(sketch.kept_counts() == recount(sketch));
  }
}

TEST_CASE("erasing keeps the order of the other rows") {
  Sketch sketch;
  sketch.add_exact(10, 16);
  sketch.erase(1);
  sketch.erase(2, 4);
  REQUIRE(sketch.size() == 3);
  CHECK(sketch[0].token == 10);
  CHECK(sketch[1].token == 12);
  CHECK(sketch[2].token == 15);
}

}  // namespace accounting_test
}  // namespace kvbench::test
