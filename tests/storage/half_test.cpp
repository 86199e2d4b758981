#include "storage/half.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "system/error.hpp"

namespace kvbench::test {

TEST_CASE("every binary16 number is itself again") {
  for (int bits = 0; bits < 65536; ++bits) {
    const double x = from_half(static_cast<std::uint16_t>(bits));
    if (std::isnan(x)) continue;
    REQUIRE(half_bits(x) == bits);
  }
}

TEST_CASE(
    "a number between two of binary16 goes to the nearer one, in the middle to the even one") {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = from_half(static_cast<std::uint16_t>(bits));
    const double high = from_half(static_cast<std::uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    REQUIRE(half_bits(std::nextafter(middle, low)) == bits);
    REQUIRE(half_bits(std::nextafter(middle, high)) == bits + 1);
    REQUIRE(half_bits(middle) == bits + (bits & 1));
    REQUIRE(half_bits(-middle) == (0x8000 | (bits + (bits & 1))));
  }
}

TEST_CASE("what binary16 cannot hold is infinite, and an error where a scale is meant") {
  CHECK(half_bits(65519.999) == 0x7bff);
  CHECK(half_bits(65520.0) == 0x7c00);
  CHECK(rounded_to_half(65519.0) == 65504.0);
  CHECK_THROWS_WITH_AS(rounded_to_half(-65520.0), doctest::Contains("-65520"), CellError);
  CHECK(std::isnan(from_half(half_bits(std::numeric_limits<double>::quiet_NaN()))));
}

}  // namespace kvbench::test
