#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>

#include "codec_support.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace integer_formats_test {

Value count(Index x) { return Value{x}; }
Value word(const char* x) { return Value{std::string(x)}; }

Numbers wave(std::size_t count, double step) {
  Numbers x;
  for (std::size_t i = 0; i < count; ++i) {
    x.push_back(std::sin(step * static_cast<double>(i)) * (1 + static_cast<double>(i % 5)));
  }
  return x;
}

Index bytes_of(const std::string& id, const Given& given, Index width,
               CacheTensor tensor = CacheTensor::kKeys) {
  return made(id, given, width, {}, tensor).codec->bytes();
}

TEST_CASE("int per token: groups of consecutive channels, scales before codes") {
  const Given given = {{"bits", count(2)}, {"group", count(4)}};
  const MadeCodec of = made("int", given, 8);
  CHECK(of.codec->group() == 1);
  REQUIRE(of.codec->bytes() == 2 * 4 + 2);
  // Steps 1 and 2, minima -1 and 10.
  const Numbers x = {-1, 0, 1, 2, 16, 14, 12, 10};
  const Bytes bytes = encoded(*of.codec, 8, x);
  const auto half = [&](std::size_t i) {
    return from_half(get_bytes<std::uint16_t>(bytes.data() + i));
  };
  CHECK(half(0) == 1.0);
  CHECK(half(2) == -1.0);
  CHECK(half(4) == 2.0);
  CHECK(half(6) == 10.0);
  CHECK(bytes[8] == std::byte{0xe4});
  CHECK(bytes[9] == std::byte{0x1b});
  CHECK(decoded(*of.codec, 8, bytes) == x);
}

TEST_CASE("int per channel: `group` consecutive tokens of a channel") {
  const Given given = {{"bits", count(2)}, {"per", word("channel")}, {"group", count(4)}};
  const MadeCodec of = made("int", given, 2);
  CHECK(of.codec->group() == 4);
  CHECK(of.codec->bytes() == 2 * 4 + 2);
  // Channel 0: -1, 0, 1, 2; channel 1: 16, 14, 12, 10.
  const Numbers x = {-1, 16, 0, 14, 1, 12, 2, 10};
  const Bytes bytes = encoded(*of.codec, 2, x);
  CHECK(bytes[8] == std::byte{0xe4});
  CHECK(bytes[9] == std::byte{0x1b});
  CHECK(decoded(*of.codec, 2, bytes) == x);
  CHECK(of.codec->written(11, 0) == 8);
}

TEST_CASE("int: bytes count scales and codes") {
  // d = 64: codes 64 b / 8, scales 2 each, twice if asymmetric, 8 each if exact.
  CHECK(bytes_of("int", {}, 64) == 32 + 2 * 4);
  CHECK(bytes_of("int", {{"form", word("symmetric")}}, 64) == 32 + 2 * 2);
  CHECK(bytes_of("int", {{"scales", word("exact")}}, 64) == 32 + 2 * 16);
  CHECK(bytes_of("int", {{"group", word("all")}, {"bits", count(3)}}, 64) == 24 + 4);
  CHECK(bytes_of("int", {{"group", count(5)}, {"bits", count(3)}}, 5) == 2 + 4);
  CHECK(bytes_of("int", {{"per", word("channel")}, {"group", count(3)}}, 5) == 8 + 5 * 4);
  CHECK(bytes_of("token", {{"bits", count(3)}}, 64) == 24 + 4);
}

TEST_CASE("int: symmetric codes, of the whole vector where group is all") {
  const Given given = {{"bits", count(4)}, {"form", word("symmetric")}, {"group", word("all")}};
  CHECK(round_trip("int", given, 5, {-7, 3.5, 2.5, 1.4, 0}) == Numbers{-7, 4, 2, 1, 0});
}

TEST_CASE("token is int with one asymmetric group a vector") {
  const Numbers x = wave(6 * 50, 0.7);
  for (const Index bits : {2, 3, 5, 8}) {
    CHECK(round_trip("token", {{"bits", count(bits)}}, 50, x) ==
          round_trip("int", {{"bits", count(bits)}, {"group", word("all")}}, 50, x));
  }
}

TEST_CASE("kivi is int per channel for keys and per token for values") {
  const Numbers x = wave(64 * 48, 0.9);
  for (const Index bits : {2, 3, 4, 8}) {
    for (const char* scales : {"fp16", "exact"}) {
      const Given kivi = {{"bits", count(bits)}, {"group", count(16)}, {"scales", word(scales)}};
      Given same = kivi;
      CHECK(round_trip("kivi", kivi, 48, x, CacheTensor::kValues) ==
            round_trip("int", same, 48, x, CacheTensor::kValues));
      same.emplace_back("per", word("channel"));
      CHECK(round_trip("kivi", kivi, 48, x) == round_trip("int", same, 48, x));
    }
  }
}

TEST_CASE("kivi: keys are stored by `residual` when that many more are there, values one by one") {
  const Given given = {{"group", count(4)}, {"residual", count(8)}};
  const MadeCodec keys = made("kivi", given, 8);
  const MadeCodec values = made("kivi", given, 8, {}, CacheTensor::kValues);
  CHECK(keys.codec->group() == 4);
  CHECK(values.codec->group() == 1);
  const Index held[] = {0, 1, 8, 9, 10, 16, 17, 24, 25};
  const Index of_keys[] = {0, 0, 0, 8, 8, 8, 16, 16, 24};
  const Index of_values[] = {0, 0, 0, 0, 1, 7, 8, 15, 16};
  for (std::size_t i = 0; i < std::size(held); ++i) {
    CHECK(keys.codec->written(held[i], 3) == of_keys[i]);
    CHECK(values.codec->written(held[i], 3) == of_values[i]);
  }
}

TEST_CASE("kivi: bytes of a block") {
  // Keys: 32 tokens of 64 channels, b + 32 / 32 bits a number; values the same per token.
  CHECK(bytes_of("kivi", {}, 64) == 32 * 64 * 3 / 8);
  CHECK(bytes_of("kivi", {}, 64, CacheTensor::kValues) == 64 * 3 / 8);
  CHECK(bytes_of("kivi", {{"bits", count(3)}}, 64) == 32 * 64 * 4 / 8);
  CHECK(bytes_of("kivi", {{"scales", word("exact")}}, 64) == 32 * 64 * 6 / 8);
}

TEST_CASE("what does not fit is refused with the remedy") {
  CHECK(skip_of("kivi", {}, 48, CacheTensor::kValues) ==
        "vectors of 48 numbers are not whole groups of 32; choose a group that divides 48");
  CHECK(skip_of("kivi", {}, 48).empty());
  CHECK(skip_of("int", {}, 48).find("choose a group that divides 48") != std::string::npos);
  CHECK(skip_of("int", {{"group", word("all")}}, 48).empty());
  CHECK(skip_of("int", {{"per", word("channel")}}, 48).empty());
  CHECK(skip_of("token", {}, 48).empty());
  CHECK_THROWS_WITH(made("kivi", {{"residual", count(48)}}, 64),
                    doctest::Contains("residual must be a multiple of group, 32, got 48"));
  CHECK_THROWS_WITH(made("kivi", {{"bits", count(5)}}, 64),
                    doctest::Contains("bits must be 2, 3, 4 or 8, got 5"));
  CHECK_THROWS_WITH(made("int", {{"per", word("channel")}, {"group", word("all")}}, 64),
                    doctest::Contains("group must be a number of tokens"));
  CHECK_THROWS_WITH(made("int", {{"bits", count(1)}}, 64), doctest::Contains("bits must be"));
}

TEST_CASE("keys beyond binary16 fail with fp16 scales and not with exact ones") {
  Numbers x(8, 1.0);
  x[3] = 1e5;
  const Given group = {{"group", count(8)}, {"bits", count(2)}};
  CHECK(round_trip("int", group, 8, x)[3] == doctest::Approx(1e5).epsilon(1e-3));
  x[4] = -1e5;
  CHECK_THROWS_AS(round_trip("int", group, 8, x), CellError);
  Given exact = group;
  exact.emplace_back("scales", word("exact"));
  CHECK(round_trip("int", exact, 8, x)[3] == 1e5);
}

}  // namespace integer_formats_test
}  // namespace kvbench::test
