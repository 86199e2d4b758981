// Weighted sums of values: against the definition, and the same bits however questions are batched.
#include "kernels/weighted_values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"
#include "numerics/counter_rng.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace weighted_values_test {

struct Asked {
  std::vector<std::int32_t> tokens;
  std::vector<double> c;
};

std::vector<Asked> questions(Index tokens, Index count) {
  const CounterRng random(3, 0, "test/weighted values");
  std::vector<Asked> out(count);
  for (Index q = 0; q < count; ++q) {
    Asked& asked = out[q];
    for (Index j = 0; j < tokens; ++j) {  // three questions about all, three about some, ..
      const double u = random.uniform(static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(q));
      if (q / 3 % 2 == 1 && u < 1.0 / 3) continue;
      asked.tokens.push_back(static_cast<std::int32_t>(j));
      asked.c.push_back(u < 0.4 ? 0.0 : std::ldexp(u - 0.7, static_cast<int>(j % 40) - 20));
    }
  }
  return out;
}

std::vector<double> batched(ConstMatrix values, const std::vector<Asked>& all, std::size_t batch) {
  const auto weighted = cpu_kernels().weighted_values(values);
  std::vector<double> out;
  std::vector<double> some;
  for (std::size_t q = 0; q < all.size(); ++q) {
    std::copy(all[q].c.begin(), all[q].c.end(), weighted->ask(all[q].tokens));
    if (weighted->questions() < static_cast<Index>(batch) && q + 1 < all.size()) continue;
    weighted->sums(some);
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

TEST_CASE("weighted sums are their definition, in one order, whatever is asked together") {
  for (const Index tokens : {1, 5, 127, 128, 129, 255, 256, 257, 700}) {
    for (const Index dv : {1, 7, 8, 9, 43, 64}) {
      CAPTURE(tokens);
      CAPTURE(dv);
      const auto owned = make_stream({.tokens = tokens, .d = 2, .dv = dv});
      const ConstMatrix values = owned->stream.values;
      const std::vector<Asked> all = questions(tokens, 20);
      std::vector<double> expected;
      for (const Asked& asked : all) {
        for (Index k = 0; k < dv; ++k) {
          double sum = 0.0;
          for (std::size_t i = 0; i < asked.tokens.size(); ++i) {
            sum = std::fma(asked.c[i], values(asked.tokens[i], k), sum);
          }
          expected.push_back(sum);
        }
      }
      for (const std::size_t batch : {1U, 2U, 6U, 7U, 20U}) {
        CHECK(batched(values, all, batch) == expected);
      }
    }
  }
}

TEST_CASE("no question has no sum, and one that holds nothing has zeros") {
  const auto owned = make_stream({.tokens = 4, .d = 2, .dv = 3});
  const auto weighted = cpu_kernels().weighted_values(owned->stream.values);
  std::vector<double> out = {1.0};
  weighted->sums(out);
  CHECK(out.empty());
  weighted->ask({});
  weighted->sums(out);
  CHECK(out == std::vector<double>(3, 0.0));
}

}  // namespace weighted_values_test
}  // namespace kvbench::test
