#include "storage/stored_norm.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "system/error.hpp"

namespace kvbench::test {
namespace stored_norm_test {

double stored(double size) {
  std::array<std::byte, kStoredNormBytes> bytes{};
  put_norm(size, bytes.data());
  return get_norm(bytes.data());
}

TEST_CASE("norms neither overflow nor vanish on the way") {
  const std::array x = {3.0, -4.0, 0.0, 12.0};
  for (const int exponent : {0, 1, -1, 500, 1010, -500, -1040}) {
    std::array<double, 4> scaled{};
    for (std::size_t k = 0; k < 4; ++k) scaled[k] = std::ldexp(x[k], exponent);
    CHECK(vector_norm(scaled.data(), 4) == std::ldexp(13.0, exponent));
  }
  const std::array<double, 2> zero{};
  CHECK(vector_norm(zero.data(), 2) == 0.0);
}

TEST_CASE("a norm is stored in binary16, and one beyond it is an error") {
  CHECK(stored(13.0) == 13.0);
  CHECK(stored(2049.0) == 2048.0);
  CHECK(stored(1e-300) == 0.0);
  CHECK_THROWS_WITH_AS(stored(65520.0), doctest::Contains("65520"), CellError);
  const std::array<double, 2> huge = {1.5e308, 1.5e308};
  CHECK_THROWS_AS(stored(vector_norm(huge.data(), 2)), CellError);
}

}  // namespace stored_norm_test
}  // namespace kvbench::test
