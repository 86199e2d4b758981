// Largest component of the error over that of the exact output, row by row.
#include <doctest/doctest.h>

#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {

TEST_CASE("errors.relative_linf, worked: the last token alone") {
  // Equal logits. Row 1: a = (1, 3), z = (0, 4). Row 2: a = (2, 2), z = (4, 0).
  const auto owned = stream_of({{0}, {0}, {0}}, {{2, 2}, {0, 4}, {4, 0}}, {{{0}, {0}, {0}}});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    if (row >= 0) sketch.add_exact(row, row + 1);
  });
  const CellResult result = replay_one(owned->stream, 1, algorithm, Params{});
  REQUIRE(result.row_values);
  const std::vector<double>& values = (*result.row_values)["relative_linf"];
  CHECK(values[0] == doctest::Approx(1.0 / 3.0).epsilon(1e-14));
  CHECK(values[1] == doctest::Approx(1.0).epsilon(1e-14));
  CHECK(*result.metrics["errors.relative_linf.mean"] == doctest::Approx(2.0 / 3.0).epsilon(1e-14));
  CHECK(*result.metrics["errors.relative_linf.max"] == doctest::Approx(1.0).epsilon(1e-14));
}

}  // namespace kvbench::test
