// oscar: a matrix, codes and clips worked by hand, what is held unquantised, and its facts.
#include <doctest/doctest.h>

#include <cmath>

#include "codec_support.hpp"
#include "support/owned_stream.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace oscar_test {

Given with(Given given, const char* name, Value value) {
  given.emplace_back(name, std::move(value));
  return given;
}

const Given kPlain = {{"clip", Value{0.0}}, {"scales", Value{std::string("exact")}}};

// Four rows, whose queries have the mean of q q^T diag(16, 9, 4, 1) / 4. The keys weight the values
// (1, 0) and (0, 1) by 16 / 4 and 4 * 9 / 4.
std::unique_ptr<OwnedStream> worked() {
  return stream_of({{1, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
                   {{1, 0}, {0, 1}, {5, 5}, {5, 5}},
                   {{{4, 0, 0, 0}, {0, 3, 0, 0}, {0, 0, 2, 0}, {0, 0, 0, 1}}});
}

std::unique_ptr<Codec> oscar(const Stream& stream, const Given& given,
                             CacheTensor tensor = CacheTensor::kKeys, Index prompt = 4) {
  const CodecDescription& codec = codec_named("oscar");
  return codec.create(codec_params(codec, given), {stream, prompt, 0, tensor});
}

void check_near(const Numbers& found, const Numbers& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) CHECK(found[k] == doctest::Approx(expected[k]));
}

// Eigenvectors by rising eigenvalue are the axes 3, 2, 1, 0. Hadamard's matrix makes (6, 3, 2, 1)
// of (1, 2, 3, 6), taken so, to (6, 2, 3, 1), whose numbers at 3, 1, 2, 0 are what is written.
TEST_CASE("worked: codes of the turned numbers 1, 2, 3, 6") {
  const auto owned = worked();
  const auto codec = oscar(owned->stream, kPlain);
  CHECK(codec->bytes() == 17);
  const Bytes code = encoded(*codec, 4, {1, 2, 3, 6});
  // A step is 5/3: 0.5, 1.1, 1.7 and 3.5 are rounded down.
  CHECK(code.back() == std::byte{0 + (1 << 2) + (1 << 4) + (3 << 6)});
  // The turned numbers are read as 1, 8/3, 8/3, 6.
  check_near(decoded(*codec, 4, code), {5.0 / 6, 2.5, 2.5, 37.0 / 6});
}

TEST_CASE("worked: a clip, groups and more bits of the turned numbers 1, 1, 3, 6") {
  const auto owned = worked();
  const Numbers x = {1.5, 1.5, 3.5, 5.5};
  const auto back = [&](const Given& given) {
    const auto codec = oscar(owned->stream, given);
    return decoded(*codec, 4, encoded(*codec, 4, x));
  };
  // The third of the sizes 1, 1, 3, 6 is the most: 1, 1, 3, 3.
  check_near(back({{"clip", Value{0.5}}}), {0, 0, 2, 4});
  check_near(back({{"clip", Value{1.0}}}), back(kPlain));
  // Each group of two has its least and its largest number.
  check_near(back(with(kPlain, "group", Value{std::int64_t{2}})), x);
  const auto codec = oscar(owned->stream, with(kPlain, "group", Value{std::int64_t{2}}));
  CHECK(codec->bytes() == 33);
  // Steps of 5/7 from 1 on: 3 is read as 3 + 1/7.
  check_near(back(with(kPlain, "bits", Value{std::int64_t{3}})),
             {1.5 - 1.0 / 14, 1.5 - 1.0 / 14, 3.5 + 1.0 / 14, 5.5 + 1.0 / 14});
}

TEST_CASE("worked: matrices of keys, and of values by their weights") {
  const auto owned = worked();
  const CodecDescription& codec = codec_named("oscar");
  const CalibratedNumbers numbers =
      codec.calibrate(codec_params(codec, {}), one_text(owned->stream, 4));
  CHECK(numbers.at("key_rotation").shape == std::vector<Index>{4, 4});
  check_near(numbers.at("key_rotation").values, {0.5, -0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5, -0.5,
                                                 -0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5});
  // The second value weighs more: out is (x0 - x1, x0 + x1) over the root of 2.
  const double half = std::sqrt(0.5);
  CHECK(numbers.at("value_rotation").shape == std::vector<Index>{2, 2});
  check_near(numbers.at("value_rotation").values, {half, half, -half, half});
}

TEST_CASE("of equal keys and values on two heads of a layer the mean is that of each") {
  const auto one = worked();
  const auto two = worked();
  two->stream.id.kv_head = 1;
  for (double& x : two->queries[0]) x *= 3.0;  // in the same directions
  const CodecDescription& codec = codec_named("oscar");
  const auto both = [&](const auto& visit) {
    visit(one->stream, Index{4});
    visit(two->stream, Index{4});
  };
  const CalibratedNumbers alone =
      codec.calibrate(codec_params(codec, {}), one_text(one->stream, 4));
  const CalibratedNumbers together = codec.calibrate(codec_params(codec, {}), {4, 1, both});
  for (const auto& [name, array] : together) check_near(array.values, alone.at(name).values);
  // Other queries of the second head make the mean diag(20, 18, 40, 82) / 8.
  two->queries[0] = {0, 0, 0, 9, 0, 0, 6, 0, 0, 3, 0, 0, 2, 0, 0, 0};
  two->connect();
  const CalibratedNumbers mixed = codec.calibrate(codec_params(codec, {}), {4, 1, both});
  check_near(mixed.at("key_rotation").values, {-0.5, -0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, -0.5, 0.5,
                                               -0.5, 0.5, 0.5, -0.5, -0.5, 0.5});
}

TEST_CASE("the first and the last tokens are held unquantised") {
  const auto owned = worked();
  const auto codec = oscar(owned->stream, {});
  CHECK(codec->sinks() == 64);
  CHECK(codec->written(64 + 256, 200) == 0);
  CHECK(codec->written(64 + 256 + 9, 200) == 9);
  CHECK(codec->shared_bytes() == 4 * 4 * 4);
  CHECK(codec->bytes() == 9);
  CHECK(oscar(owned->stream, {{"scales", Value{std::string("fp16")}}})->bytes() == 5);
}

TEST_CASE("numbers beyond the formats of scale and zero are refused") {
  const auto owned = worked();
  const auto half = oscar(owned->stream, {{"scales", Value{std::string("fp16")}}});
  CHECK_THROWS_AS(encoded(*half, 4, {0, 0, 0, 1e6}), CellError);
  const auto single = oscar(owned->stream, {});
  CHECK_THROWS_AS(encoded(*single, 4, {0, 0, 0, 1e300}), CellError);
}

TEST_CASE("what it cannot write, and what it cannot calibrate on") {
  CHECK(skip_of("oscar", {}, 12).find("power of two") != std::string::npos);
  CHECK(skip_of("oscar", {{"group", Value{std::int64_t{3}}}}, 8).find("groups of 3") !=
        std::string::npos);
  CHECK(skip_of("oscar", {}, 8, CacheTensor::kKeys, 0).find("prompt is empty") !=
        std::string::npos);
  StreamShape shape;
  shape.tokens = 9;
  shape.d = shape.dv = 4;
  shape.first_query = 3;
  const CodecDescription& codec = codec_named("oscar");
  const auto why = codec.skip_reason(codec_params(codec, {}), shape, CacheTensor::kValues, 6);
  CHECK(why.value_or("").find("rows 0 to 5, but the dump has only rows from 3") !=
        std::string::npos);
  Params params = codec_params(codec, {});
  params.set("share", Value{std::string("layer")});
  const auto alone = codec.validate(params);
  REQUIRE(alone.has_value());
  CHECK(alone->first == "share");
}

}  // namespace oscar_test
}  // namespace kvbench::test
