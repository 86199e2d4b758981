#include "run/stored_outputs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "run/small_run.hpp"

namespace kvbench::test {
namespace stored_outputs_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_CASE("the relative difference, worked by hand") {
  const double z[] = {3.0, 5.0};
  const double out[] = {3.0, 4.0};
  const double zero[] = {0.0, 0.0};
  CHECK(relative_difference(z, out, 2) == doctest::Approx(1.0 / 5.0));
  CHECK(relative_difference(out, out, 2) == 0.0);
  CHECK(relative_difference(zero, zero, 2) == 0.0);
  CHECK(relative_difference(z, zero, 2) == kInfinity);
}

TEST_CASE("a difference that is not a number does not pass") {
  CHECK(larger_difference(1.0, 2.0) == 2.0);
  CHECK(larger_difference(2.0, 1.0) == 2.0);
  CHECK(larger_difference(1.0, std::nan("")) == kInfinity);
}

TEST_CASE("stored outputs are recomputed, and compared with the rows they belong to") {
  const SmallRun run;
  const LayerInfo layer = *run.dumps[0].info().find_sequence("0")->find_layer(1);
  REQUIRE(layer.out_rows == 8);
  // Stored as float64; the sums differ in their order alone.
  CHECK(output_difference(run.dumps[0], "0", layer, 8).most < 1e-13);
  CHECK(output_difference(run.dumps[0], "0", layer, 3).most < 1e-13);
  CHECK(output_difference(run.dumps[0], "0", layer, 3).agrees());
  LayerInfo shifted = layer;
  shifted.out_rows = 7;  // reads the outputs of the row before
  CHECK(output_difference(run.dumps[0], "0", shifted, 3).most > 1e-3);
  CHECK(!output_difference(run.dumps[0], "0", shifted, 3).agrees());
}

}  // namespace stored_outputs_test
}  // namespace kvbench::test
