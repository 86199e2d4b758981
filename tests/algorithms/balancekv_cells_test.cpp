// balancekv's cells and buckets against the bounds that merge-and-reduce (I17) and the erase rule
// (I21) promise at every step.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "support/balance_rows.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace balancekv_cells_test {

Given operator+(Given given, const Given& more) {
  given.insert(given.end(), more.begin(), more.end());
  return given;
}

Given tree(Index t, Index T) { return {{"t", count_of(t)}, {"T", count_of(T)}}; }

std::vector<BalanceRows> rows_at(const Stream& stream, Index prompt, const Given& given,
                                 std::uint32_t seed = 0) {
  std::vector<BalanceRows> out;
  for (const Sketch& sketch : sketches_of("balancekv", stream, prompt, given, seed)) {
    out.push_back(balance_rows(sketch));
  }
  return out;
}

int bucket_of(const Stream& stream, Index token) {
  const double norm = largest_norm({stream.values.row(token), 1, stream.shape.dv});
  int i = -1000;
  while (std::ldexp(1.0, i) <= norm) ++i;
  return i;
}

// The fault of the cells of a tree that has seen the tokens of `order`, ascending; "" where there
// is none.
std::string error_of_tree(const std::vector<BalanceRow>& rows, const std::vector<Index>& order,
                          Index t, Index T, const std::string& side) {
  const Index seen = std::ssize(order);
  std::set<Index> tokens;
  std::map<Index, Index> sizes;
  double mass = 0.0;
  for (const BalanceRow& row : rows) {
    if (!tokens.insert(row.token).second) return "a token twice";
    if (!std::binary_search(order.begin(), order.end(), row.token)) return "a token not sent";
    int exponent = 0;
    if (std::frexp(row.weight, &exponent) != 0.5) return "a weight that is not a power of two";
    if (exponent < 1 || exponent - 1 > T) return "a weight of no level";
    ++sizes[exponent - 1];
    mass += row.weight;
  }
  if (T == 0) return sizes[0] == seen ? "" : "reduced at T = 0";
  // C^0 is what came after the last multiple of t.
  if (sizes[0] != seen % t) return "C^0 of another size";
  for (Index j = seen - seen % t; j < seen; ++j) {
    if (tokens.count(order[j]) == 0) return "a new token missing";
  }
  if (side == "random") return "";
  const double all = static_cast<double>(seen);
  if (mass > all) return "more weight than tokens";
  if (side == "exact_half" && t % 2 == 0 && mass != all) return "weight lost by exact halves";
  const Index half = t / 2;
  for (Index level = 1; level < T; ++level) {
    if (sizes[level] > half) return "C^l beyond t / 2";
  }
  Index arrival = t;  // tokens per arrival in C^T
  for (Index level = 1; level < T; ++level) arrival *= 2;
  if (sizes[T] > half * (seen / arrival)) return "C^T beyond its arrivals";
  if (seen < 2 * arrival && std::ssize(rows) > t - 1 + T * half) return "too many";
  return "";
}

// The part of the erase rule that a numerator without reductions breaks at a row, "" where it keeps
// all: buckets of tokens that are missing are at or below the threshold, those kept above it, and
// there are no more than log2(2 n e^(beta r^2) / epsilon) + 1 of them.
std::string error_of_buckets(const Stream& stream, const std::vector<BalanceRow>& numerator,
                             Index row, double epsilon, double r) {
  const double inverse = 2.0 * static_cast<double>(stream.shape.tokens) *
                         std::exp(stream.shape.scale * r * r) / epsilon;
  double largest = 0.0;
  std::map<int, std::pair<Index, Index>> buckets;  // tokens seen, tokens kept
  for (Index j = 0; j <= row; ++j) {
    largest = std::max(largest, largest_norm({stream.values.row(j), 1, stream.shape.dv}));
    auto& [seen, kept] = buckets[bucket_of(stream, j)];
    ++seen;
    for (const BalanceRow& one : numerator) kept += one.token == j ? 1 : 0;
  }
  Index alive = 0;
  for (const auto& [i, counts] : buckets) {
    const bool above = std::ldexp(1.0, i) > largest / inverse;
    if (above && counts.second != counts.first) return "a bucket above the threshold lost tokens";
    if (!above && counts.second != 0) return "a bucket at or below the threshold is kept";
    alive += counts.second > 0 ? 1 : 0;
  }
  // i in (log2(v_max / inverse), log2(v_max) + 1]: as many integers as fit into that length.
  return alive <= static_cast<Index>(std::ceil(std::log2(inverse) + 1.0)) ? "" : "too many buckets";
}

TEST_CASE("cells stay within their bounds at every step, for batches odd and even") {
  const auto owned = make_stream({.tokens = 130, .d = 4, .dv = 3});
  const Stream& stream = owned->stream;
  std::vector<int> bucket;
  for (Index j = 0; j < stream.shape.tokens; ++j) bucket.push_back(bucket_of(stream, j));
  for (const Index t : {2, 3, 5, 8, 16, 33}) {
    for (const Index T : {0, 1, 2, 3, 5}) {
      for (const char* side : {"smaller", "exact_half", "random"}) {
        CAPTURE(t);
        CAPTURE(T);
        CAPTURE(std::string(side));
        const Given given =
            tree(t, T) +
            Given{{"side", word_of(side)}, {"c", number(1.0)}, {"erase", word_of("off")}};
        const std::vector<BalanceRows> rows = rows_at(stream, 0, given, 7);
        std::vector<Index> all;
        std::map<int, std::vector<Index>> buckets;
        for (Index j = 0; j < stream.shape.tokens; ++j) {
          all.push_back(j);
          buckets[bucket[j]].push_back(j);
          const BalanceRows& now = rows[j];
          CHECK(error_of_tree(now.denominator, all, t, T, side) == "");
          std::map<int, std::vector<BalanceRow>> cells;
          for (const BalanceRow& row : now.numerator) {
            cells[bucket[row.token]].push_back(row);
          }
          for (const auto& [i, tokens] : buckets) {
            CHECK(error_of_tree(cells[i], tokens, t, T, side) == "");
          }
        }
      }
    }
  }
}

using Sizes = std::vector<double>;

const Sizes& derived_sizes(const Derived& derived, const std::string& name) {
  for (const auto& [key, value] : derived) {
    if (key == name) return std::get<Sizes>(value);
  }
  throw std::runtime_error("no " + name);
}

Derived derived_of(const Stream& stream, Index prompt, const Given& given) {
  const AlgorithmDescription& algorithm = algorithm_named("balancekv");
  Stepper stepper(stream, prompt, algorithm, params_for(algorithm, given), 7);
  while (stepper.next()) {
  }
  return stepper.algorithm().derived();
}

void raise(Sizes& largest, const std::vector<BalanceRow>& rows) {
  Sizes now(largest.size(), 0.0);
  for (const BalanceRow& row : rows) ++now[std::ilogb(row.weight)];
  for (std::size_t l = 0; l < now.size(); ++l) largest[l] = std::max(largest[l], now[l]);
}

TEST_CASE("derived.denominator_cells is what a tree worked by hand holds at most") {
  const auto owned = make_stream({.tokens = 9, .d = 3, .dv = 2});
  const auto sizes = [&](Index t, Index T) {
    const Given given = tree(t, T) + Given{{"side", word_of("exact_half")}, {"c", number(1.0)}};
    return derived_sizes(derived_of(owned->stream, 0, given), "denominator_cells");
  };
  CHECK(sizes(4, 0) == Sizes{9});        // never reduced
  CHECK(sizes(4, 1) == Sizes{3, 4});     // two halves of four tokens
  CHECK(sizes(2, 2) == Sizes{1, 1, 2});  // C^1 is halved at 4 and at 8 tokens, at 6 it holds one
  CHECK(sizes(5, 3) == Sizes{4, 2, 0, 0});
  CHECK(sizes(9, 1) == Sizes{8, 4});
  CHECK(sizes(10, 1) == Sizes{9, 0});
}

TEST_CASE("derived sizes of cells are the largest that the rows show, whatever the blocks") {
  const auto owned = make_stream({.tokens = 130, .d = 4, .dv = 3});
  for (Index j = 0; j < 130; ++j) {  // value norms of many buckets, the small ones early
    const double size = std::ldexp(1.0, static_cast<int>((j * 7) % 37) - (j < 60 ? 60 : 20));
    for (Index k = 0; k < 3; ++k) owned->values[3 * j + k] *= size;
  }
  const Stream& stream = owned->stream;
  const Given r = {{"r", number(median_norm(stream.keys))}};
  for (const Index t : {2, 3, 8, 33}) {
    for (const Index T : {0, 1, 3}) {
      for (const char* side : {"smaller", "exact_half", "random"}) {
        for (const char* erase : {"off", "paper"}) {
          CAPTURE(t);
          CAPTURE(T);
          CAPTURE(std::string(side));
          CAPTURE(std::string(erase));
          const Given given =
              tree(t, T) + r + Given{{"side", word_of(side)}, {"erase", word_of(erase)}};
          Sizes denominator(static_cast<std::size_t>(T) + 1);
          Sizes numerator = denominator;
          for (const BalanceRows& rows : rows_at(stream, 0, given, 7)) {
            raise(denominator, rows.denominator);
            raise(numerator, rows.numerator);
          }
          for (const Index prompt : {0, 100}) {  // token by token, and a block
            const Derived derived = derived_of(stream, prompt, given);
            CHECK(derived_sizes(derived, "denominator_cells") == denominator);
            CHECK(derived_sizes(derived, "numerator_cells") == numerator);
          }
        }
      }
    }
  }
}

TEST_CASE("T auto is max(0, ceil(log2(n / t)))") {
  struct Expected {
    Index tokens;
    Index t;
    Index T;
  };
  for (const Expected& e : {Expected{64, 16, 2},
                            {65, 16, 3},
                            {100, 7, 4},
                            {100, 100, 0},
                            {100, 1000, 0},
                            {96, 3, 5},
                            {97, 3, 6},
                            {2, 2, 0},
                            {3, 2, 1}}) {
    const auto owned = make_stream({.tokens = e.tokens, .d = 3, .dv = 2});
    const AlgorithmDescription& algorithm = algorithm_named("balancekv");
    const Params params = params_for(algorithm, {{"t", count_of(e.t)}, {"T", word_of("auto")}});
    Stepper stepper(owned->stream, 0, algorithm, params);
    CHECK(derived_real(stepper.algorithm().derived(), "T") == static_cast<double>(e.T));
    CHECK(rows_at(owned->stream, 0, {{"t", count_of(e.t)}, {"T", word_of("auto")}}, 2)
              .back()
              .denominator == rows_at(owned->stream, 0, tree(e.t, e.T), 2).back().denominator);
  }
}

TEST_CASE("buckets alive are those above the threshold, and few; red where none is erased") {
  const auto owned = make_stream({.tokens = 80, .d = 4, .dv = 3});
  for (Index j = 0; j < 80; ++j) {
    const double size = std::ldexp(1.0, static_cast<int>((j * 7) % 37) - 30);
    for (Index k = 0; k < 3; ++k) owned->values[3 * j + k] *= size;
  }
  const double r = median_norm(owned->stream.keys);
  const auto errors = [&](const char* erase) {  // at how many rows which
    const std::vector<BalanceRows> rows =
        rows_at(owned->stream, 0,
                tree(1000, 2) +
                    Given{{"epsilon", number(1.5)}, {"r", number(r)}, {"erase", word_of(erase)}});
    std::map<std::string, int> found;
    for (Index row = 0; row < 80; ++row) {
      const auto& numerator = rows[row].numerator;
      ++found[error_of_buckets(owned->stream, numerator, row, 1.5, r)];
    }
    return found;
  };
  CHECK(errors("paper") == std::map<std::string, int>{{"", 80}});
  CHECK(errors("off")["a bucket at or below the threshold is kept"] > 60);
  CHECK(errors("strict")["a bucket at or below the threshold is kept"] > 0);
}

}  // namespace balancekv_cells_test
}  // namespace kvbench::test
