// Comparing what a registered algorithm answers, or reads, with what a naive program does.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/naive_reading.hpp"

namespace kvbench::test {

inline void check_answers(const std::string& id, const Stream& stream, Index prompt,
                          const Given& given, const Answers& expected) {
  const std::vector<Sketch> all = sketches_of(id, stream, prompt, given);
  REQUIRE(all.size() == expected.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Index row = prompt + static_cast<Index>(r);
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      CAPTURE(row);
      CAPTURE(g);
      const Answer answer = library_answer(stream, g, row, all[r]);
      const std::vector<double>& naive = expected[r][g];
      for (std::size_t c = 0; c < naive.size(); ++c) {
        CHECK(std::fabs(answer.answer[c] - naive[c]) <= 1e-12 * (1.0 + std::fabs(naive[c])));
      }
    }
  }
}

// The weights that query head g reads, by token; they are equal in both sums, each token once.
inline std::map<Index, double> weights_for(const Sketch& sketch, int g) {
  std::map<Index, double> weights;
  for (const SketchRow& row : sketch.rows()) {
    if (row.head >= 0 && row.head != g) continue;
    CHECK(row.w_num == row.w_den);
    CHECK(weights.emplace(row.token, row.w_den).second);
  }
  return weights;
}

}  // namespace kvbench::test
