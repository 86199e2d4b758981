#include <doctest/doctest.h>

#include <cmath>

#include "codec_support.hpp"
#include "storage/bit_stream.hpp"
#include "storage/little_endian.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace hqq_test {

Given settings(Index bits, Index group, const char* scales) {
  return {{"bits", Value{bits}}, {"group", Value{group}}, {"scales", Value{std::string(scales)}}};
}

const Numbers kSkewed = {-1.5, -0.4, 0.1, 0.2, 0.3, 0.6, 0.9, 4.0};

TEST_CASE("hqq: codes, scale and zero of hqq 0.2.8.post1") {
  // Quantizer.quantize(torch.tensor([x]), nbits=3, group_size=8, axis=1, device="cpu",
  // compute_dtype=torch.float32, bitpack=False); unfitted zeros would be 1.9090909 and 3.7692308.
  Numbers x = kSkewed;
  const Numbers flat = {.01, .02, .05, -.07, .3, -.35, 0, .11};
  x.insert(x.end(), flat.begin(), flat.end());
  const MadeCodec of = made("hqq", settings(3, 8, "fp32"), 16);
  REQUIRE(of.codec->bytes() == 16 + 6);
  const Bytes bytes = encoded(*of.codec, 16, x);
  CHECK(get_float(bytes.data()) == 0.785714328289032F);
  CHECK(get_float(bytes.data() + 4) == doctest::Approx(1.8193389177322388).epsilon(1e-6));
  CHECK(get_float(bytes.data() + 8) == 0.09285714477300644F);
  CHECK(get_float(bytes.data() + 12) == doctest::Approx(3.780768871307373).epsilon(1e-6));
  const std::uint32_t codes[] = {0, 1, 2, 2, 2, 3, 3, 7, 4, 4, 4, 3, 7, 0, 4, 5};
  BitReader reader(bytes.data() + 16);
  for (const std::uint32_t code : codes) CHECK(reader.get(3) == code);
  const Numbers back = decoded(*of.codec, 16, bytes);
  CHECK(back[7] == doctest::Approx((7 - 1.8193389177322388) * 0.785714328289032).epsilon(1e-6));
}

TEST_CASE("hqq: scales and zeros of 16 or 32 bits") {
  CHECK(made("hqq", settings(4, 64, "fp16"), 128).codec->bytes() == 64 + 2 * 4);
  CHECK(made("hqq", settings(4, 64, "fp32"), 128).codec->bytes() == 64 + 2 * 8);
  CHECK(made("hqq", settings(1, 8, "fp16"), 8).codec->bytes() == 1 + 4);
  const Numbers exact = round_trip("hqq", settings(2, 8, "fp32"), 8, kSkewed);
  const Numbers half = round_trip("hqq", settings(2, 8, "fp16"), 8, kSkewed);
  CHECK(exact != half);
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::fabs(exact[i] - half[i]) < 6 * 0x1p-11);
}

TEST_CASE("hqq: what it cannot write") {
  CHECK(skip_of("hqq", {}, 96).find("choose a group that divides 96") != std::string::npos);
  CHECK(skip_of("hqq", {}, 128).empty());
  CHECK_THROWS_WITH(made("hqq", settings(5, 8, "fp16"), 8),
                    doctest::Contains("bits must be 1, 2, 3, 4 or 8, got 5"));
  CHECK_THROWS_AS(round_trip("hqq", settings(4, 8, "fp16"), 8, {1e39, 0, 0, 0, 0, 0, 0, 0}),
                  CellError);
  // Eight numbers of 100 within 0.01: a zero of 150000.
  Numbers narrow(8, 100.0);
  narrow[3] = 100.01;
  CHECK_THROWS_AS(round_trip("hqq", settings(4, 8, "fp16"), 8, narrow), CellError);
}

}  // namespace hqq_test
}  // namespace kvbench::test
