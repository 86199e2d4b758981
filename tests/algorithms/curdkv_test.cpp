// curdkv: shares of squared norms in windows, and which tokens stay.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_ranking.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace curdkv_test {

Given curdkv(Index budget, Index sinks, Index window, const std::string& leverage = "kv_product") {
  return {{"budget", count_of(budget)},
          {"sinks", count_of(sinks)},
          {"window", count_of(window)},
          {"leverage", word_of(leverage)}};
}

// Shares of these tokens, the window of place p being p / window.
std::vector<Real> naive_shares(ConstMatrix rows, const std::vector<Index>& tokens, Index window) {
  const auto square = [&](std::size_t place) {
    Real sum = 0;
    for (Index k = 0; k < rows.cols; ++k) {
      sum += static_cast<Real>(rows(tokens[place], k)) * static_cast<Real>(rows(tokens[place], k));
    }
    return sum;
  };
  std::vector<Real> shares;
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    Real total = 0;
    for (std::size_t other = 0; other < tokens.size(); ++other) {
      const auto w = static_cast<std::size_t>(window);
      if (other / w == p / w) total += square(other);
    }
    shares.push_back(total > 0 ? square(p) / total : 0);
  }
  return shares;
}

// As kvpress has it: normalised, and the first tokens set to 1.
KeptSets naive_curdkv(const Stream& stream, Index prompt, Index budget, Index sinks, Index window,
                      const std::string& leverage) {
  return naive_once(stream, prompt, {budget, 0, 0}, [&](const std::vector<Index>& tokens) {
    const std::vector<Real> k = naive_shares(stream.keys, tokens, window);
    const std::vector<Real> v = naive_shares(stream.values, tokens, window);
    std::vector<Real> scores;
    Real sum = 0;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      scores.push_back(leverage == "key"      ? k[p]
                       : leverage == "value"  ? v[p]
                       : leverage == "kv_avg" ? (k[p] + v[p]) / 2
                                              : k[p] * v[p]);
      sum += scores.back();
    }
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      scores[p] = tokens[p] < sinks ? 1 : sum > 0 ? scores[p] / sum : 0;
    }
    return scores;
  });
}

std::vector<Index> first_row(const Stream& stream, Index prompt, const Given& given) {
  return kept_by("curdkv", stream, prompt, given).front();
}

TEST_CASE("curdkv, worked: windows of three over seven tokens") {
  // Squared keys 1 1 2 | 4 4 0 | 9: shares 1/4 1/4 1/2 | 1/2 1/2 0 | 1. Squared values 4 0 0 | 1 4
  // 0 | 0: shares 1 0 0 | 1/5 4/5 0 | 0 (a window of zeros).
  const double r2 = std::sqrt(2.0);
  const auto owned = stream_of({{1}, {-1}, {r2}, {2}, {2}, {0}, {3}, {1}},
                               {{2}, {0}, {0}, {1}, {-2}, {0}, {0}, {1}}, {Rows(8, {1.0})});
  const Stream& stream = owned->stream;
  // Products 1/4 0 0 | 1/10 2/5 0 | 0.
  CHECK(first_row(stream, 7, curdkv(1, 0, 3)) == std::vector<Index>{4, 7});
  CHECK(first_row(stream, 7, curdkv(2, 0, 3)) == std::vector<Index>{0, 4, 7});
  CHECK(first_row(stream, 7, curdkv(4, 0, 3)) == std::vector<Index>{0, 1, 3, 4, 7});
  CHECK(first_row(stream, 7, curdkv(3, 2, 3)) == std::vector<Index>{0, 1, 4, 7});
  CHECK(first_row(stream, 7, curdkv(1, 0, 3, "key")) == std::vector<Index>{6, 7});
  CHECK(first_row(stream, 7, curdkv(2, 0, 3, "value")) == std::vector<Index>{0, 4, 7});
  // Sums 5/4 1/4 1/2 | 7/10 13/10 0 | 1.
  CHECK(first_row(stream, 7, curdkv(3, 0, 3, "kv_avg")) == std::vector<Index>{0, 4, 6, 7});
}

TEST_CASE("curdkv keeps what its definition keeps, on every stream, window and leverage") {
  Index ran = 0;
  for (const StreamSpec& spec :
       std::vector<StreamSpec>{{.tokens = 50, .d = 5, .dv = 3, .heads_per_kv = 3},
                               {.tokens = 50, .d = 5, .dv = 3, .window = 19},
                               {.tokens = 50, .d = 64, .dv = 2, .kind = StreamKind::kClustered},
                               {.tokens = 50, .d = 3, .dv = 2, .kind = StreamKind::kSomeZeroValues},
                               {.tokens = 50, .d = 3, .dv = 2, .kind = StreamKind::kZeroKeys}}) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 7, 33, 49}) {
      for (const Index budget : {1, 6, 12, 30, 60}) {
        for (const Index sinks : {0, 4, 11}) {
          for (const Index window : {2, 7, 16, 100}) {
            for (const char* leverage : {"key", "value", "kv_avg", "kv_product"}) {
              CAPTURE(spec.window);
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(window);
              CAPTURE(std::string(leverage));
              const Given given = curdkv(budget, sinks, window, leverage);
              if (!skip_of("curdkv", owned->stream.shape, prompt, given).empty()) continue;
              CHECK(kept_by("curdkv", owned->stream, prompt, given) ==
                    naive_curdkv(owned->stream, prompt, budget, sinks, window, leverage));
              ++ran;
            }
          }
        }
      }
    }
  }
  CHECK(ran > 3000);
}

TEST_CASE("windows of one token score 1, or 0: the lowest tokens that are not zero stay") {
  const auto owned = make_stream({.tokens = 30, .d = 3, .dv = 2});
  CHECK(first_row(owned->stream, 20, curdkv(4, 0, 1)) == std::vector<Index>{0, 1, 2, 3, 20});
  // Tokens 0, 1, 2, 5, 8, .. of zero values.
  const auto zeros =
      make_stream({.tokens = 30, .d = 3, .dv = 2, .kind = StreamKind::kSomeZeroValues});
  std::vector<Index> lowest;
  for (Index j = 0; j < 20 && lowest.size() < 4; ++j) {
    if (zeros->stream.values(j, 0) != 0) lowest.push_back(j);
  }
  lowest.push_back(20);
  CHECK(first_row(zeros->stream, 20, curdkv(4, 0, 1)) == lowest);
}

TEST_CASE("curdkv is skipped if the budget is smaller than its sinks") {
  const StreamShape shape = make_stream({.tokens = 60})->stream.shape;
  CHECK(skip_of("curdkv", shape, 40, curdkv(4, 4, 8)).empty());
  CHECK(!skip_of("curdkv", shape, 40, curdkv(3, 4, 8)).empty());
}

}  // namespace curdkv_test
}  // namespace kvbench::test
