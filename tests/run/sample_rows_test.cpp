#include "run/sample_rows.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

namespace kvbench::test {
namespace {

using Rows = std::vector<Index>;

StreamShape tokens(Index count) {
  StreamShape shape;
  shape.tokens = count;
  return shape;
}

Rows range(Index first, Index last) {
  Rows rows(static_cast<std::size_t>(last - first));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

TEST_CASE("pairs of a row that is visited and a token, counted by hand") {
  const StreamShape shape = tokens(100);
  // Scored rows of the prompt alone see 1 + .. + 40, with the decode rows 1 + .. + 100.
  CHECK(visited_pairs(shape, 40, range(0, 40), false) == 820);
  CHECK(visited_pairs(shape, 40, range(0, 40), true) == 5050);
  CHECK(visited_pairs(shape, 40, {0, 39}, true) == 1 + 40 + (5050 - 820));
  CHECK(visited_pairs(shape, 40, {98, 99}, false) == 199);
  CHECK(visited_pairs(shape, 40, {98, 99}, true) == 5050 - 820);
  StreamShape every_token = shape;
  every_token.causal = false;
  CHECK(visited_pairs(every_token, 100, {3, 7}, true) == 200);
  StreamShape few_queries = shape;
  few_queries.first_query = 98;
  CHECK(visited_pairs(few_queries, 40, {99}, true) == 199);
}

TEST_CASE("all rows where they are affordable") {
  const SampleRows sample = sample_rows(tokens(100), 40, {0, 39}, true, 4271);
  CHECK(sample.rows == Rows{0, 39});
  CHECK(sample.tokens == 100);
}

TEST_CASE("of scored rows of the prompt an even choice, and fewer decode rows after all of it") {
  const SampleRows sample = sample_rows(tokens(100), 40, range(0, 40), true, 505.1);
  CHECK(sample.rows == Rows{5, 15, 25, 35});
  CHECK(sample.tokens == 46);
  const SampleRows least = sample_rows(tokens(100), 40, range(0, 40), true, 0.0);
  CHECK(least.rows == Rows{20});
  CHECK(least.tokens == 41);
}

TEST_CASE("decode rows are scored at the same places of fewer") {
  const auto tenth = [](const Rows& rows) {
    const StreamShape shape = tokens(100);
    const double all = visited_pairs(shape, 40, rows, true);
    const SampleRows sample = sample_rows(shape, 40, rows, true, all / 10 + 0.1);
    CHECK(sample.tokens == 46);
    return sample.rows;
  };
  CHECK(tenth(range(40, 100)) == range(40, 46));
  CHECK(tenth(range(80, 100)) == Rows{44, 45});  // the last third
  CHECK(tenth({99}) == Rows{45});
  CHECK(tenth({40}) == Rows{40});
}

TEST_CASE("every choice has ascending rows, each with a query and among the tokens") {
  for (const Index first_query : {0, 50, 70}) {
    StreamShape shape = tokens(90);
    shape.first_query = first_query;
    for (const Index prompt : {0, 1, 60, 89}) {
      for (const Index step : {1, 2, 7, 40}) {
        for (const bool of_prompt : {false, true}) {
          Rows rows;
          for (Index i = of_prompt ? 0 : prompt; i < (of_prompt ? prompt : 90); i += step) {
            if (i >= first_query) rows.push_back(i);
          }
          if (rows.empty()) continue;
          const double all = visited_pairs(shape, prompt, rows, true);
          for (const double part : {0.0, 0.01, 0.3, 0.77, 0.999}) {
            const SampleRows sample = sample_rows(shape, prompt, rows, true, part * all);
            CAPTURE(first_query);
            CAPTURE(prompt);
            CAPTURE(step);
            CAPTURE(of_prompt);
            CAPTURE(part);
            REQUIRE(!sample.rows.empty());
            CHECK(sample.rows.size() <= rows.size());
            CHECK(sample.rows.front() >= (of_prompt ? first_query : std::max(prompt, first_query)));
            CHECK(sample.rows.back() < (of_prompt ? prompt : sample.tokens));
            CHECK(sample.tokens > prompt);
            for (std::size_t i = 1; i < sample.rows.size(); ++i) {
              CHECK(sample.rows[i] > sample.rows[i - 1]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvbench::test
