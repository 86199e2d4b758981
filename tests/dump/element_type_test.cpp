#include "hdf5/element_type.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace kvbench;

namespace element_type_test {

constexpr ElementType kAll[] = {ElementType::kFloat16, ElementType::kBfloat16,
                                ElementType::kFloat32, ElementType::kFloat64};

// The value of 16 bits by the definition of binary floating point.
double by_definition(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int sign = bits >> 15;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return sign == 0 ? magnitude : -magnitude;
}

std::vector<std::uint16_t> every_word() {
  std::vector<std::uint16_t> words(65536);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint16_t>(i);
  return words;
}

const std::byte* bytes_of(const std::vector<std::uint16_t>& words) {
  return reinterpret_cast<const std::byte*>(words.data());
}

std::uint16_t stored_word(ElementType type, double value) {
  std::uint16_t word = 0;
  from_doubles(type, &value, 1, reinterpret_cast<std::byte*>(&word));
  return word;
}

TEST_CASE("every 16-bit word becomes the double that its bits define, and comes back") {
  const auto words = every_word();
  for (const auto& [type, exponent_bits] :
       {std::pair{ElementType::kFloat16, 5}, std::pair{ElementType::kBfloat16, 8}}) {
    std::vector<double> values(words.size());
    to_doubles(type, bytes_of(words), words.size(), values.data());
    std::vector<double> one(1);
    int wrong = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const bool finite = first_nonfinite(type, bytes_of(words) + 2 * i, 1) == 1;
      CHECK(finite == std::isfinite(values[i]));
      to_doubles(type, bytes_of(words) + 2 * i, 1, one.data());  // the scalar path
      if (!finite) {
        wrong += std::isnan(values[i]) != std::isnan(one[0]);
        continue;
      }
      const double expected = by_definition(words[i], exponent_bits, 15 - exponent_bits);
      wrong += std::bit_cast<std::uint64_t>(values[i]) != std::bit_cast<std::uint64_t>(expected);
      wrong += std::bit_cast<std::uint64_t>(one[0]) != std::bit_cast<std::uint64_t>(expected);
      wrong += stored_word(type, values[i]) != words[i];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("storing rounds to nearest, ties to even, straight from double") {
  CHECK(stored_word(ElementType::kFloat16, 1.0 + 0x1p-11) == 0x3c00);      // tie: even below
  CHECK(stored_word(ElementType::kFloat16, 1.0 + 3 * 0x1p-11) == 0x3c02);  // tie: even above
  CHECK(stored_word(ElementType::kFloat16, 1.0 + 0x1p-11 + 0x1p-40) ==
        0x3c01);  // not by way of float
  CHECK(stored_word(ElementType::kFloat16, 0x1p-25) == 0x0000);
  CHECK(stored_word(ElementType::kFloat16, 1.5 * 0x1p-24) == 0x0002);
  CHECK(stored_word(ElementType::kFloat16, 0x1p-14 - 0x1p-26) == 0x0400);  // up to a normal number
  CHECK(stored_word(ElementType::kFloat16, 65519.0) == 0x7bff);
  CHECK(stored_word(ElementType::kFloat16, 65520.0) == 0x7c00);
  CHECK(stored_word(ElementType::kFloat16, -65520.0) == 0xfc00);
  CHECK(stored_word(ElementType::kBfloat16, 1.0 + 0x1p-8) == 0x3f80);
  CHECK(stored_word(ElementType::kBfloat16, 1.0 + 3 * 0x1p-8) == 0x3f82);
  CHECK(stored_word(ElementType::kBfloat16, 1.0 + 0x1p-8 + 0x1p-40) == 0x3f81);
  CHECK(std::isnan(rounded_to(ElementType::kFloat16, std::nan(""))));
  CHECK(rounded_to(ElementType::kFloat16, 0.1) == 0.0999755859375);
  CHECK(rounded_to(ElementType::kFloat32, 0.1) == static_cast<double>(0.1F));
  CHECK(rounded_to(ElementType::kFloat64, 0.1) == 0.1);
  CHECK(largest_finite(ElementType::kFloat16) == 65504.0);
  CHECK(largest_finite(ElementType::kFloat32) ==
        static_cast<double>(std::numeric_limits<float>::max()));
}

TEST_CASE("the first element that is not finite is found wherever it stands") {
  for (const ElementType type : kAll) {
    const std::size_t size = element_bytes(type);
    const std::vector<double> values(3000, -1.5);
    std::vector<std::byte> bytes(values.size() * size);
    from_doubles(type, values.data(), values.size(), bytes.data());
    CHECK(first_nonfinite(type, bytes.data(), values.size()) == values.size());
    for (const double bad : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
      for (const std::size_t at : {std::size_t{2999}, std::size_t{1024}, std::size_t{0}}) {
        from_doubles(type, &bad, 1, bytes.data() + at * size);
        CHECK(first_nonfinite(type, bytes.data(), values.size()) == at);
      }
      from_doubles(type, values.data(), values.size(), bytes.data());
    }
  }
}

TEST_CASE("names and bytes swapped twice come back") {
  for (const ElementType type : kAll) {
    CHECK(element_type_named(element_name(type)) == type);
    const std::vector<double> values = {1.0, -2.5, 0.15625};
    std::vector<std::byte> bytes(values.size() * element_bytes(type));
    from_doubles(type, values.data(), values.size(), bytes.data());
    const auto before = bytes;
    swap_bytes(type, bytes.data(), values.size());
    CHECK(bytes != before);
    swap_bytes(type, bytes.data(), values.size());
    CHECK(bytes == before);
  }
  CHECK_FALSE(element_type_named("int8"));
}

}  // namespace element_type_test
