// Comparing what a registered algorithm answers with a naive program's answers.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
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
      const std::vector<double>& naive = expected[r][static_cast<std::size_t>(g)];
      for (std::size_t c = 0; c < naive.size(); ++c) {
        CHECK(std::fabs(answer.answer[c] - naive[c]) <= 1e-12 * (1.0 + std::fabs(naive[c])));
      }
    }
  }
}

}  // namespace kvbench::test
