#include <doctest/doctest.h>

#include "support/given.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace {

TEST_CASE("sparse_history holds every fourth token and the last three") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  const KeptSets kept = kept_by("sparse_history", owned->stream, 9, {});
  CHECK(kept.front() == std::vector<Index>{0, 4, 7, 8, 9});
  CHECK(kept.back() == std::vector<Index>{0, 4, 8, 9, 10, 11});
  const KeptSets odd = kept_by("sparse_history", owned->stream, 9,
                               {{"start", word_of("second")}, {"recent", count_of(1)}});
  CHECK(odd.back() == std::vector<Index>{1, 5, 9, 11});
}

}  // namespace
}  // namespace kvbench::test
