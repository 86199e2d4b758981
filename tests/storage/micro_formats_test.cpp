#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "codec_support.hpp"
#include "storage/little_endian.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace micro_formats_test {

Numbers padded(Numbers x, Index width) {
  x.resize(width, 0.0);
  return x;
}

Given scaled(const char* scale) { return {{"scale", Value{std::string(scale)}}}; }

TEST_CASE("mxfp4: the scale is two powers of two below the largest size's, ties go to even") {
  const MadeCodec of = made("mxfp4", {}, 32);
  REQUIRE(of.codec->bytes() == 17);
  const Numbers x = padded({7, -6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25, 0.26, -0.3}, 32);
  const Bytes bytes = encoded(*of.codec, 32, x);
  CHECK(bytes[0] == std::byte{127});
  // Codes of 0, 0.5, 1, 1.5, 2, 3, 4, 6 are 0 to 7; 8 is the sign; numbers 0 and 16 share a byte.
  CHECK(bytes[1] == std::byte{0x07});
  CHECK(bytes[2] == std::byte{0x0f});
  CHECK(bytes[3] == std::byte{0x06});
  CHECK(decoded(*of.codec, 32, bytes) == padded({6, -6, 4, 4, 2, 2, 1, 1, 0, 0.5, -0.5}, 32));
  Numbers later(32, 0.0);
  later[16] = 6 * 0x1p-20;
  const Bytes small = encoded(*of.codec, 32, later);
  CHECK(small[0] == std::byte{107});
  CHECK(small[1] == std::byte{0x70});
  CHECK(decoded(*of.codec, 32, small) == later);
}

TEST_CASE("mxfp4: a largest size just below a power of two has the scale of the lower one") {
  const double below = std::nextafter(8.0, 0.0);
  const MadeCodec of = made("mxfp4", {}, 32);
  CHECK(encoded(*of.codec, 32, padded({below}, 32))[0] == std::byte{127});
  CHECK(encoded(*of.codec, 32, padded({8.0}, 32))[0] == std::byte{128});
}

TEST_CASE("mxfp4: the ends of its scale") {
  const MadeCodec of = made("mxfp4", {}, 32);
  CHECK(encoded(*of.codec, 32, padded({}, 32)) == Bytes(17));
  const Numbers least = padded({0x1p-128, 0x1p-127}, 32);
  CHECK(encoded(*of.codec, 32, least)[0] == std::byte{0});
  CHECK(decoded(*of.codec, 32, encoded(*of.codec, 32, least)) == least);
  CHECK(round_trip("mxfp4", {}, 32, padded({1e-310}, 32)) == padded({}, 32));
  const Numbers most = padded({0x1.8p129}, 32);
  CHECK(round_trip("mxfp4", {}, 32, most) == most);
  CHECK_THROWS_WITH_AS(round_trip("mxfp4", {}, 32, padded({0x1p130}, 32)),
                       doctest::Contains("E8M0"), CellError);
}

TEST_CASE("nvfp4 without a common scale: E4M3 of a sixth of the block's largest size") {
  const MadeCodec of = made("nvfp4", scaled("none"), 16);
  REQUIRE(of.codec->bytes() == 9);
  CHECK(of.codec->shared_bytes() == 0);
  // 12 / 6 = 2, in E4M3 0x40.
  const Numbers x = padded({12, -5, 7, 1.5, 0, 0, 0, 0, 0.9}, 16);
  const Bytes bytes = encoded(*of.codec, 16, x);
  CHECK(bytes[0] == std::byte{0x40});
  // -2.5 and 3.5 and 0.75 are ties, 0.45 is not.
  CHECK(decoded(*of.codec, 16, bytes) == padded({12, -4, 8, 2, 0, 0, 0, 0, 1}, 16));
  CHECK(bytes[1] == std::byte{0x17});
  // 7 / 6 becomes 1.125: 7 / 1.125 = 6.2.., limited to 6.
  CHECK(round_trip("nvfp4", scaled("none"), 16, padded({7}, 16))[0] == 6.75);
  // Numbers below half of E4M3's least, and beyond its largest.
  CHECK(round_trip("nvfp4", scaled("none"), 16, padded({6 * 0x1p-10}, 16)) == padded({}, 16));
  CHECK(round_trip("nvfp4", scaled("none"), 16, padded({1e6, -1}, 16)) == padded({2688}, 16));
}

TEST_CASE("nvfp4 with the tensor's scale: that of the prompt") {
  // g = 26.88 / 2688 = 0.01 in float32.
  Numbers x = padded({26.88}, 16);
  const Numbers later = padded({53.76, 1}, 16);
  x.insert(x.end(), later.begin(), later.end());
  const MadeCodec of = made("nvfp4", scaled("tensor"), 16, x, CacheTensor::kKeys, 1);
  CHECK(of.codec->bytes() == 9);
  CHECK(of.codec->shared_bytes() == 4);
  const Bytes bytes = encoded(*of.codec, 16, x);
  CHECK(bytes[0] == std::byte{0x7e});
  CHECK(bytes[9] == std::byte{0x7e});
  const double g = static_cast<double>(26.88F / 2688.0F);
  CHECK(decoded(*of.codec, 16, bytes)[0] == 448 * g * 6);
  CHECK(decoded(*of.codec, 16, bytes)[16] == 448 * g * 6);
  CHECK(decoded(*of.codec, 16, bytes)[17] == 0);
  CHECK(skip_of("nvfp4", {}, 16, CacheTensor::kKeys, 0).find("choose") != std::string::npos);
}

TEST_CASE("nvfp4 with a token's scale: before its blocks") {
  const MadeCodec of = made("nvfp4", scaled("token"), 32);
  CHECK(of.codec->bytes() == 4 + 2 * 9);
  Numbers x(32, 0.0);
  x[0] = -2688;
  x[31] = 6;
  const Bytes bytes = encoded(*of.codec, 32, x);
  CHECK(get_float(bytes.data()) == 1.0F);
  CHECK(bytes[4] == std::byte{0x7e});
  CHECK(bytes[13] == std::byte{0x38});
  CHECK(decoded(*of.codec, 32, bytes) == x);
}

TEST_CASE("four-bit floating point needs whole blocks") {
  CHECK(skip_of("mxfp4", {}, 48).find("groups of 32; choose") != std::string::npos);
  CHECK(skip_of("nvfp4", {}, 24).find("groups of 16; choose") != std::string::npos);
  CHECK(skip_of("nvfp4", {}, 48).empty());
}

}  // namespace micro_formats_test
}  // namespace kvbench::test
