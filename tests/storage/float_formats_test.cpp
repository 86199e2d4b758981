#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "codec_support.hpp"
#include "storage/little_endian.hpp"
#include "storage/small_float.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace float_formats_test {

// Every number, and what lies next to the middle of two.
template <SmallFloat F>
void check_format() {
  for (std::uint32_t bits = 0; bits <= F.largest; ++bits) {
    const double x = small_float_value<F>(bits);
    REQUIRE(small_float_bits<F>(x) == bits);
    REQUIRE(small_float_bits<F>(-x) == (bits | F.sign()));
    REQUIRE(small_float_value<F>(bits | F.sign()) == -x);
    if (bits == F.largest) continue;
    const double next = small_float_value<F>(bits + 1);
    REQUIRE(next > x);
    const double middle = (x + next) / 2;
    REQUIRE(small_float_bits<F>(std::nextafter(middle, x)) == bits);
    REQUIRE(small_float_bits<F>(std::nextafter(middle, next)) == bits + 1);
    REQUIRE(small_float_bits<F>(middle) == bits + (bits & 1));
  }
}

Given scaled(const char* scale) { return {{"scale", Value{std::string(scale)}}}; }

TEST_CASE("formats of 16 and fewer bits: every number is itself, others become the nearest one") {
  check_format<kBFloat16>();
  check_format<kBinary16>();
  check_format<kE4M3>();
  check_format<kE5M2>();
  check_format<kE2M1>();
}

TEST_CASE("numbers of the formats' definitions") {
  CHECK(small_float_value<kE2M1>(0) == 0.0);
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint32_t bits = 0; bits < 8; ++bits)
    CHECK(small_float_value<kE2M1>(bits) == e2m1[bits]);
  CHECK(small_float_value<kE4M3>(0x7e) == 448.0);
  CHECK(small_float_value<kE4M3>(0x01) == 0x1p-9);
  CHECK(small_float_value<kE4M3>(0x38) == 1.0);
  CHECK(std::isnan(small_float_value<kE4M3>(0x7f)));
  CHECK(small_float_value<kE5M2>(0x7b) == 57344.0);
  CHECK(small_float_value<kE5M2>(0x01) == 0x1p-16);
  CHECK(small_float_value<kE5M2>(0xfc) == -std::numeric_limits<double>::infinity());
  CHECK(small_float_value<kBFloat16>(0x3f80) == 1.0);
  CHECK(small_float_value<kBFloat16>(0x0001) == 0x1p-133);
  CHECK(small_float_value<kBFloat16>(0x7f7f) == 0x1.fep127);
}

TEST_CASE("beyond the largest number E4M3 and E2M1 stay there, others are infinite") {
  CHECK(small_float_bits<kE4M3>(464.1) == 0x7e);
  CHECK(small_float_bits<kE4M3>(-1e300) == 0xfe);
  CHECK(small_float_bits<kE2M1>(6.9) == 7);
  CHECK(small_float_bits<kE2M1>(-100) == 15);
  CHECK(small_float_bits<kE5M2>(61439.9) == 0x7b);
  CHECK(small_float_bits<kE5M2>(61440) == 0x7c);
  CHECK(small_float_bits<kBFloat16>(0x1.ffp127) == 0x7f80);
  CHECK(std::isnan(small_float_value<kBFloat16>(
      small_float_bits<kBFloat16>(std::numeric_limits<double>::quiet_NaN()))));
}

TEST_CASE("a double is rounded once") {
  // Next to the middle of 1 and 1 + 2^-7, nearer to it than a float32 can tell.
  const double middle = 1 + 0x1p-8;
  CHECK(round_trip("bf16", {}, 2, {middle + 0x1p-40, middle - 0x1p-40}) == Numbers{1 + 0x1p-7, 1});
}

TEST_CASE("codecs of numbers: bytes, least first") {
  const MadeCodec half = made("fp16", {}, 2);
  CHECK(half.codec->bytes() == 4);
  CHECK(encoded(*half.codec, 2, {1.0, -2.0}) ==
        Bytes{std::byte{0x00}, std::byte{0x3c}, std::byte{0x00}, std::byte{0xc0}});
  const MadeCodec brain = made("bf16", {}, 1);
  CHECK(encoded(*brain.codec, 1, {1.0}) == Bytes{std::byte{0x80}, std::byte{0x3f}});
  const MadeCodec e4m3 = made("fp8_e4m3", {}, 3);
  CHECK(e4m3.codec->bytes() == 3);
  CHECK(e4m3.codec->shared_bytes() == 0);
  CHECK(encoded(*e4m3.codec, 3, {1.0, -1.0, 500.0}) ==
        Bytes{std::byte{0x38}, std::byte{0xb8}, std::byte{0x7e}});
}

TEST_CASE("a number beyond a format with infinity is an error that names it") {
  CHECK_THROWS_WITH_AS(round_trip("fp16", {}, 2, {1.0, -70000.0}), doctest::Contains("-70000 is"),
                       CellError);
  CHECK_THROWS_WITH_AS(round_trip("bf16", {}, 1, {1e39}), doctest::Contains("is beyond"),
                       CellError);
  CHECK_THROWS_AS(round_trip("fp8_e5m2", {}, 1, {61440.0}), CellError);
  CHECK(round_trip("fp8_e4m3", {}, 1, {1e300}) == Numbers{448});
}

TEST_CASE("a token's scale makes its largest number the format's") {
  const MadeCodec of = made("fp8_e4m3", scaled("token"), 2);
  CHECK(of.codec->bytes() == 6);
  CHECK(of.codec->shared_bytes() == 0);
  // max |x| / 448 = 2^-4; relative to that 448 and 16.
  const Bytes bytes = encoded(*of.codec, 2, {-28, 1});
  CHECK(get_float(bytes.data()) == 0x1p-4F);
  CHECK(bytes[4] == std::byte{0xfe});
  CHECK(bytes[5] == std::byte{0x58});
  CHECK(decoded(*of.codec, 2, bytes) == Numbers{-28, 1});
}

TEST_CASE("the tensor's scale is that of the prompt, and later numbers beyond it are cut") {
  const MadeCodec of =
      made("fp8_e4m3", scaled("tensor"), 2, {28, 1, 7, -56}, CacheTensor::kKeys, 1);
  CHECK(of.codec->bytes() == 2);
  CHECK(of.codec->shared_bytes() == 4);
  CHECK(decoded(*of.codec, 2, encoded(*of.codec, 2, *of.numbers)) == Numbers{28, 1, 7, -28});
}

TEST_CASE("a tensor's scale needs a prompt") {
  CHECK(skip_of("fp8_e4m3", scaled("tensor"), 8, CacheTensor::kKeys, 0).find("choose") !=
        std::string::npos);
  CHECK(skip_of("fp8_e4m3", scaled("tensor"), 8, CacheTensor::kKeys, 1).empty());
  CHECK(skip_of("fp8_e4m3", scaled("token"), 8, CacheTensor::kKeys, 0).empty());
}

}  // namespace float_formats_test
}  // namespace kvbench::test
