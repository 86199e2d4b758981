// Blocks worked by hand from the layouts of ggml-common.h; tests/peers compares whole tensors with
// the gguf package.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "codec_support.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace ggml_formats_test {

constexpr Index kBlock = 32;

// Zeros except some numbers.
Numbers block(const std::vector<std::pair<std::size_t, double>>& given) {
  Numbers x(kBlock, 0.0);
  for (const auto& [i, number] : given) x[i] = number;
  return x;
}

struct Encoded {
  Bytes bytes;
  Numbers back;

  int at(std::size_t i) const { return std::to_integer<int>(bytes[i]); }
  double half_at(std::size_t i) const {
    return from_half(get_bytes<std::uint16_t>(bytes.data() + i));
  }
};

Encoded encoded_block(const char* id, const Numbers& x) {
  const MadeCodec of = made(id, {}, kBlock);
  Encoded out;
  out.bytes = encoded(*of.codec, kBlock, x);
  out.back = decoded(*of.codec, kBlock, out.bytes);
  return out;
}

const char* const kFormats[] = {"q8_0", "q5_0", "q5_1", "q4_0", "q4_1"};

TEST_CASE("q8_0: the scale in binary16, then a byte a number, halves away from 0") {
  // d = 254 / 127 = 2.
  const Encoded of = encoded_block("q8_0", block({{0, -254}, {1, 127}, {2, 1}, {31, -0.9}}));
  REQUIRE(of.bytes.size() == 34);
  CHECK(of.half_at(0) == 2.0);
  CHECK(of.at(2) == 256 - 127);
  CHECK(of.at(3) == 64);
  CHECK(of.at(4) == 1);
  CHECK(of.at(33) == 0);
  CHECK(of.back == block({{0, -254}, {1, 128}, {2, 2}}));
}

TEST_CASE("q4_0: the largest number has code 0, its negative one level less") {
  // d = 8 / -8 = -1; codes 0, 15 (of 16) and 7, others 8.
  const Encoded of = encoded_block("q4_0", block({{0, 8}, {1, -8}, {16, 1}}));
  REQUIRE(of.bytes.size() == 18);
  CHECK(of.half_at(0) == -1.0);
  CHECK(of.at(2) == 0x70);
  CHECK(of.at(3) == 0x8f);
  CHECK(of.at(4) == 0x88);
  CHECK(of.back == block({{0, 8}, {1, -7}, {16, 1}}));
  // The first of two numbers of one size decides.
  CHECK(encoded_block("q4_0", block({{3, -8}, {4, 8}})).half_at(0) == 1.0);
}

TEST_CASE("q5_0: upper bits together, lower ones as in q4_0") {
  // d = 16 / -16 = -1; codes 0, 31 (of 32) and 13, others 16.
  const Encoded of = encoded_block("q5_0", block({{0, 16}, {1, -16}, {17, 3}}));
  REQUIRE(of.bytes.size() == 22);
  CHECK(of.half_at(0) == -1.0);
  CHECK(get_bytes<std::uint32_t>(of.bytes.data() + 2) == 0xfffdfffeU);
  CHECK(of.at(6) == 0x00);
  CHECK(of.at(7) == 0xdf);
  CHECK(of.back == block({{0, 16}, {1, -15}, {17, 3}}));
}

TEST_CASE("q4_1 and q5_1: scale, minimum, codes from the minimum") {
  Numbers x(kBlock);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 16) - 3;
  const Encoded four = encoded_block("q4_1", x);
  REQUIRE(four.bytes.size() == 20);
  CHECK(four.half_at(0) == 1.0);
  CHECK(four.half_at(2) == -3.0);
  for (std::size_t i = 0; i < 16; ++i) CHECK(four.at(4 + i) == static_cast<int>(17 * i));
  CHECK(four.back == x);

  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.5 * static_cast<double>(i) + 2;
  const Encoded five = encoded_block("q5_1", x);
  REQUIRE(five.bytes.size() == 24);
  CHECK(five.half_at(0) == 0.5);
  CHECK(five.half_at(2) == 2.0);
  CHECK(get_bytes<std::uint32_t>(five.bytes.data() + 4) == 0xffff0000U);
  for (std::size_t i = 0; i < 16; ++i) CHECK(five.at(8 + i) == static_cast<int>(17 * i));
  CHECK(five.back == x);
}

TEST_CASE("codes are made with the scale before it is rounded to binary16") {
  // d = 1000.3 / 127 = 7.8764; with binary16's 7.875 the second number would have code 64.
  const double d = 1000.3 / 127;
  const double x = 63.495 * d;
  REQUIRE(x / rounded_to_half(d) > 63.5);
  CHECK(encoded_block("q8_0", block({{0, 1000.3}, {1, x}})).at(3) == 63);
}

TEST_CASE("zeros, and numbers whose scale is 0 in binary16, are zeros") {
  for (const char* id : kFormats) {
    CHECK(encoded_block(id, block({})).back == block({}));
    CHECK(encoded_block(id, block({{2, 1e-42}})).back == block({}));
    CHECK(encoded_block(id, block({{2, 1e-300}})).back == block({}));
  }
}

TEST_CASE("a scale or minimum beyond binary16 is an error") {
  CHECK_THROWS_WITH_AS(encoded_block("q8_0", block({{1, 127 * 65520.0}})),
                       doctest::Contains("65520"), CellError);
  CHECK_THROWS_AS(encoded_block("q4_0", block({{1, -8 * 65520.0}})), CellError);
  CHECK_THROWS_AS(encoded_block("q4_1", block({{1, -65520.0}})), CellError);
  for (const char* id : kFormats) {
    CHECK_THROWS_AS(encoded_block(id, block({{1, 1e39}})), CellError);
    CHECK_THROWS_AS(encoded_block(id, Numbers(kBlock, -1e300)), CellError);
  }
  CHECK(encoded_block("q8_0", block({{1, 127 * 65504.0}})).back[1] == 127 * 65504.0);
}

TEST_CASE("vectors are blocks after blocks, and 32 must divide their width") {
  Numbers x(2 * kBlock);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((7 * i) % 64) - 20;
  for (const char* id : kFormats) {
    Bytes both;
    for (std::size_t first : {0, 32}) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
      const Bytes one = encoded_block(id, Numbers(begin, begin + kBlock)).bytes;
      both.insert(both.end(), one.begin(), one.end());
    }
    const MadeCodec of = made(id, {}, 64);
    CHECK(encoded(*of.codec, 64, x) == both);
    CHECK(skip_of(id, {}, 48).find("vectors of 48 numbers are not whole groups of 32; choose") !=
          std::string::npos);
    CHECK(skip_of(id, {}, 96).empty());
  }
}

}  // namespace ggml_formats_test
}  // namespace kvbench::test
