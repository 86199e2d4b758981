// Codecs of vectors less the prompt's mean.
#include "storage/centred.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "codec_support.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace centred_test {

const Given kMean = {{"centre", Value{std::string("mean")}}};

Numbers normal_numbers(std::size_t size, unsigned seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  Numbers out(size);
  for (double& x : out) x = normal(rng);
  return out;
}

double squared_error(const Numbers& a, const Numbers& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

TEST_CASE("the bytes are those of the codec of what the prompt's mean leaves") {
  // The prompt's rows are the first two; their mean is (2, -1, 0.5, 8).
  const Numbers rows = {1, 0, 0.5, 16, 3, -2, 0.5, 0, 5, 7, -3, 9};
  const Numbers rest = {-1, 1, 0, 8, 1, -1, 0, -8, 3, 8, -3.5, 1};
  const MadeCodec plain = made("token", {}, 4, rest);
  const MadeCodec of = made("token", kMean, 4, rows, CacheTensor::kKeys, 2);
  const Bytes bytes = encoded(*of.codec, 4, rows);
  CHECK(bytes == encoded(*plain.codec, 4, rest));
  Numbers expected = decoded(*plain.codec, 4, bytes);
  const Numbers mean = {2, -1, 0.5, 8};
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += mean[i % 4];
  CHECK(decoded(*of.codec, 4, bytes) == expected);
  CHECK(of.codec->bytes() == plain.codec->bytes());
  CHECK(of.codec->shared_bytes() == plain.codec->shared_bytes() + 4 * 4);
}

TEST_CASE("an offset of all vectors changes no error, and without the mean it does") {
  const Index d = 64;
  const Numbers z = normal_numbers(64 * 32, 7);
  Numbers offset(64);
  for (std::size_t k = 0; k < 64; ++k)
    offset[k] = k % 9 == 0 ? 96.0 : -0.5 * static_cast<double>(k);
  Numbers moved = z;
  for (std::size_t i = 0; i < z.size(); ++i) moved[i] += offset[i % 64];
  for (const char* id : {"q4_0", "q8_0", "token", "kivi", "int", "mxfp4", "turboquant"}) {
    CAPTURE(id);
    const double plain = squared_error(round_trip(id, kMean, d, z), z);
    const double centred = squared_error(round_trip(id, kMean, d, moved), moved);
    CHECK(centred == doctest::Approx(plain).epsilon(0.01));  // means differ by a float32's rounding
    const double without = squared_error(round_trip(id, {}, d, moved), moved);
    const bool per_channel = std::string(id) == "kivi";
    CHECK((without > (per_channel ? 1.0 : 100.0) * centred) != per_channel);
  }
}

TEST_CASE("no prompt, a scale of the tensor and a mean beyond float32 are refused") {
  CHECK(skip_of("q8_0", kMean, 32, CacheTensor::kKeys, 0).find("choose a longer prompt") !=
        std::string::npos);
  CHECK(skip_of("q8_0", kMean, 32, CacheTensor::kValues, 1).empty());
  Given scaled = kMean;
  scaled.emplace_back("scale", Value{std::string("tensor")});
  CHECK_THROWS_WITH_AS(made("fp8_e4m3", scaled, 32), doctest::Contains("use scale token"),
                       std::invalid_argument);
  CHECK_THROWS_AS(made("bf16", kMean, 1, {1e39}), CellError);
}

}  // namespace centred_test
}  // namespace kvbench::test
