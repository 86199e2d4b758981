// Answers from exponentials that the device keeps.
#include <doctest/doctest.h>

#include "kernels_on_host.hpp"
#include "support/changing_sketches.hpp"

namespace kvbench::test {

TEST_CASE("answers by held rows are the host's in every field, however the sketches change") {
  AnswerCounts counts;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    check_changing_sketches(KernelsOnHost(), false, seed, counts);
  }
  CHECK(counts.answers > 5000);
  CHECK(counts.empty > 200);
  CHECK(counts.merged > 200);
}

}  // namespace kvbench::test
