#include "storage/uniform_quantizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "storage/half.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace uniform_quantizer_test {

using Numbers = std::vector<double>;
using Codes = std::vector<std::uint32_t>;

struct Stored {
  std::vector<std::byte> scale;
  std::vector<std::byte> codes;
};

Stored stored(const UniformQuantizer& q, const Numbers& x) {
  const Index count = std::ssize(x);
  Stored out{std::vector<std::byte>(static_cast<std::size_t>(q.scale_bytes())),
             std::vector<std::byte>(static_cast<std::size_t>(packed_bytes(count, q.bits)))};
  BitWriter writer(out.codes.data());
  q.encode(x.data(), count, out.scale.data(), writer);
  writer.finish();
  return out;
}

Codes codes(const UniformQuantizer& q, const Numbers& x) {
  const Stored of = stored(q, x);
  BitReader reader(of.codes.data());
  Codes out;
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(reader.get(q.bits));
  return out;
}

Numbers back(const UniformQuantizer& q, const Numbers& x) {
  const Stored of = stored(q, x);
  BitReader reader(of.codes.data());
  Numbers out(x.size());
  q.decode(of.scale.data(), reader, out.data(), std::ssize(x));
  return out;
}

constexpr UniformQuantizer kTwoBits{.bits = 2};
constexpr UniformQuantizer kExact{.bits = 3, .scales = Scales::kExact};

TEST_CASE("codes count steps from the least number") {
  // m = -1, r = (2 - -1) / 3 = 1.
  CHECK(codes(kTwoBits, {-1, 0.4, 2, 1.2}) == Codes{0, 1, 3, 2});
  CHECK(back(kTwoBits, {-1, 0.4, 2, 1.2}) == Numbers{-1, 0, 2, 1});
}

TEST_CASE("in the middle of two codes the even one is taken") {
  CHECK(codes(kTwoBits, {0, 0.5, 1.5, 2.5, 3}) == Codes{0, 0, 2, 2, 3});
}

TEST_CASE("symmetric codes count steps from 0") {
  const UniformQuantizer q{.bits = 4, .symmetric = true};
  // r = 7 / 7; 7 is added to what is stored.
  CHECK(codes(q, {-7, 3.5, 2.5, 1, 0}) == Codes{0, 11, 9, 8, 7});
  CHECK(back(q, {-7, 3.5, 2.5, 1, 0}) == Numbers{-7, 4, 2, 1, 0});
  CHECK(back(q, {7, -7, -6.6}) == Numbers{7, -7, -7});
  const UniformQuantizer three{.bits = 2, .symmetric = true};
  CHECK(back(three, {-4, -1.9, 2.1, 4}) == Numbers{-4, 0, 4, 4});
}

TEST_CASE("codes lie without gaps, the first in the lowest bits") {
  // 0, 1, .. 7 in three bits each: bytes 0b10'001'000, 0b1'100'011'0 and so on.
  const Stored of = stored(kExact, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(of.codes == std::vector<std::byte>{std::byte{0x88}, std::byte{0xc6}, std::byte{0xfa}});
  CHECK(packed_bytes(8, 3) == 3);
  CHECK(packed_bytes(9, 3) == 4);
  CHECK(packed_bytes(5, 2) == 2);
}

TEST_CASE("scale and minimum are numbers of binary16, with which codes are made") {
  // r = 0.1 / 3 becomes 0.033325..., so that 0.1 has code 3.0007.., which is limited to 3.
  const Numbers x = {0, 0.1};
  const double step = rounded_to_half(0.1 / 3);
  REQUIRE(step < 0.1 / 3);
  CHECK(back(kTwoBits, x) == Numbers{0, 3 * step});
  // m = 2049 becomes 2048, from where r = 1 counts: 2050.5 is 2.5 steps away.
  CHECK(codes(kTwoBits, {2049, 2050.5, 2052}) == Codes{1, 2, 3});
  CHECK(back(kTwoBits, {2049, 2050.5, 2052}) == Numbers{2049, 2050, 2051});
  CHECK(kTwoBits.scale_bytes() == 4);
}

TEST_CASE("a constant group is its minimum in binary16") {
  CHECK(back(kTwoBits, {0.3, 0.3, 0.3}) == Numbers(3, rounded_to_half(0.3)));
  CHECK(back(kExact, {0.3, 0.3}) == Numbers(2, 0.3));
  CHECK(back({.bits = 4, .symmetric = true}, {0, 0}) == Numbers(2, 0.0));
  // A range below binary16's: step 0.
  CHECK(back(kTwoBits, {0, 1e-9}) == Numbers(2, 0.0));
}

TEST_CASE("groups of every length are those of the formula, number by number") {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  for (const int bits : {1, 2, 3, 4, 5, 8}) {
    for (Index count = 1; count <= 150; count += count < 20 ? 1 : 13) {
      const UniformQuantizer q{.bits = bits, .scales = Scales::kExact};
      Numbers x(static_cast<std::size_t>(count));
      for (double& each : x) each = normal(random);
      const double low = *std::min_element(x.begin(), x.end());
      const double step = (*std::max_element(x.begin(), x.end()) - low) / ((1 << bits) - 1);
      const Codes found = codes(q, x);
      const Numbers decoded = back(q, x);
      CAPTURE(bits);
      CAPTURE(count);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double code = step == 0.0 ? 0.0 : std::nearbyint((x[i] - low) / step);
        CHECK(found[i] == static_cast<std::uint32_t>(code));
        CHECK(decoded[i] == code * step + low);
      }
    }
  }
}

TEST_CASE("of zeros with different signs the first is the minimum") {
  Numbers x(20, 1.0);
  x[3] = 0.0;
  x[12] = -0.0;
  CHECK_FALSE(std::signbit(back(kTwoBits, x)[3]));
  std::swap(x[3], x[12]);
  // 0 step + -0 is 0, so the sign shows in the stored minimum alone.
  CHECK(stored(kTwoBits, x).scale[3] == std::byte{0x80});
  std::swap(x[3], x[12]);
  CHECK(stored(kTwoBits, x).scale[3] == std::byte{0});
}

TEST_CASE("what a scale's format cannot hold is an error") {
  CHECK_THROWS_WITH_AS(back(kTwoBits, {-65520, 0}), doctest::Contains("16-bit"), CellError);
  CHECK_THROWS_WITH_AS(back(kTwoBits, {0, 3 * 65520.0}), doctest::Contains("65520"), CellError);
  CHECK(back(kExact, {-1e300, 1e300}) == Numbers{-1e300, 1e300});
  CHECK_THROWS_WITH_AS(back(kExact, {-1.7e308, 1.7e308}), doctest::Contains("range"), CellError);
}

}  // namespace uniform_quantizer_test
}  // namespace kvbench::test
