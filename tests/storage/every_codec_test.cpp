// Promises that every codec of the registry keeps. One without a row below is tried with its
// defaults and promises nothing more than all do.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "codec_support.hpp"
#include "numerics/counter_rng.hpp"
#include "storage/codec_registry.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace every_codec_test {

constexpr Index kWidth = 64;
constexpr double kNone = -1;

struct Point {
  std::string id;
  Given given;
  bool idempotent = false;   // decode(encode(y)) = y for y that it decoded
  bool doubles = false;      // code of 2 x is twice that of x, if both are normal
  double constant = kNone;   // largest relative error of a vector of one number; none promised
  bool stores_norm = false;  // in binary16: of a vector of numbers below its range it may be beyond
};

Given words(const char* name, const char* value) { return {{name, Value{std::string(value)}}}; }

std::vector<Point> rows() {
  const double half = 0x1p-11;
  std::vector<Point> out = {
      {"bf16", {}, true, true, 0x1p-8},
      {"fp16", {}, true, true, half},
      {"fp8_e4m3", {}, true, true, 0x1p-4},
      {"fp8_e4m3", words("scale", "tensor"), true, true, 0x1p-22},
      {"fp8_e4m3", words("scale", "token"), false, true, 0x1p-22},
      {"fp8_e5m2", {}, true, true, 0x1p-3},
      {"fp8_e5m2", words("scale", "token"), false, true, 0x1p-22},
      {"q8_0", {}, true, true, half},
      {"q5_0", {}, true, true, half},
      {"q5_1", {}, false, true, half},
      {"q4_0", {}, true, true, half},
      {"q4_1", {}, false, true, half},
      {"mxfp4", {}, true, true, 0.25},
      {"nvfp4", {}, true, true, 0x1p-4},
      {"nvfp4", words("scale", "none"), true, true, 0x1p-4},
      {"nvfp4", words("scale", "token"), true, true, 0x1p-22},
      {"kivi", {}, false, true, half},
      {"token", {}, false, true, half},
      {"hqq", {}, false, false, half},
      {"turboquant", {}, false, true, kNone, true},
      {"turboquant", words("form", "prod"), false, true, kNone, true},
      {"turboquant", words("form", "vllm"), false, false, kNone, true},
      {"turboquant", words("rotation", "hadamard_signs"), false, true, kNone, true},
      {"qjl", {}, false, true, kNone, true},
      {"qjl", words("projection", "gaussian"), false, true, kNone, true},
      {"polarquant", {}, false, true, kNone, true},
      {"polarquant", words("semantics", "wu"), false, true, kNone},
  };
  for (const Index bits : {2, 3, 4, 8}) {
    for (const char* form : {"asymmetric", "symmetric"}) {
      for (const char* per : {"token", "channel"}) {
        for (const char* scales : {"fp16", "exact"}) {
          out.push_back({"int",
                         {{"bits", Value{bits}},
                          {"form", Value{std::string(form)}},
                          {"per", Value{std::string(per)}},
                          {"scales", Value{std::string(scales)}}},
                         false,
                         true,
                         half});
        }
      }
    }
  }
  return out;
}

struct Tried : Point {
  CacheTensor tensor;

  std::string text() const {
    std::string out = id + (tensor == CacheTensor::kKeys ? " of keys" : " of values");
    for (const auto& [name, value] : given) out += " " + name + "=" + to_string(value);
    return out;
  }
};

std::vector<Tried> every_point() {
  std::vector<Point> points = rows();
  for (const CodecDescription& codec : all_codecs()) {
    const bool known = std::any_of(points.begin(), points.end(),
                                   [&](const Point& point) { return point.id == codec.id; });
    if (!known) points.push_back({codec.id, {}});
  }
  std::vector<Tried> out;
  for (const Point& point : points) {
    const CodecDescription& codec = codec_named(point.id);
    if (codec.of_keys) out.push_back({point, CacheTensor::kKeys});
    const bool keys_alone = point.id == "polarquant" && !point.given.empty();
    if (codec.of_values && !keys_alone) out.push_back({point, CacheTensor::kValues});
  }
  return out;
}

MadeCodec made_of(const Tried& point, Numbers numbers) {
  return made(point.id, point.given, kWidth, std::move(numbers), point.tensor);
}

Numbers back(const Tried& point, const Numbers& numbers) {
  const MadeCodec of = made_of(point, numbers);
  return decoded(*of.codec, kWidth, encoded(*of.codec, kWidth, numbers));
}

// Whole blocks of every codec here: 128 vectors of uneven sizes.
constexpr std::size_t kVectors = 128;

Numbers vectors() {
  Numbers out;
  for (std::size_t i = 0; i < kVectors * kWidth; ++i) {
    const auto token = static_cast<std::uint32_t>(i / kWidth);
    const double u = philox_uniform53({7, 1}, token, static_cast<std::uint32_t>(i % kWidth), 0);
    const double v = philox_uniform53({7, 2}, token, static_cast<std::uint32_t>(i % kWidth), 0);
    out.push_back(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v) * (1 + token % 3));
  }
  return out;
}

Numbers filled(double number) { return Numbers(kVectors * kWidth, number); }

TEST_CASE("every codec: many blocks together are the bytes of each alone, and so read back") {
  const Numbers x = vectors();
  constexpr Index kStride = kWidth + 3;
  Numbers apart(kVectors * kStride, 1e3);
  for (std::size_t t = 0; t < kVectors; ++t) {
    std::copy_n(x.data() + t * kWidth, kWidth, apart.data() + t * kStride);
  }
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    const MadeCodec of = made_of(point, x);
    const Bytes alone = encoded(*of.codec, kWidth, x);
    const Numbers read = decoded(*of.codec, kWidth, alone);
    // All of them, and as many as are no multiple of what goes side by side.
    for (const Index count : {static_cast<Index>(kVectors), Index{77}, Index{3}}) {
      const Index blocks = std::max<Index>(1, count / of.codec->group());
      const Index rows = blocks * of.codec->group();
      const auto bytes = static_cast<std::size_t>(blocks * of.codec->bytes());
      Bytes codes(bytes + 1, std::byte{0xa5});
      of.codec->encode_all({apart.data(), rows, kWidth, kStride}, codes.data());
      CHECK(codes.back() == std::byte{0xa5});
      CHECK(std::equal(codes.begin(), codes.end() - 1, alone.begin()));
      Numbers out(apart.size(), 0.125);
      of.codec->decode_all(codes.data(), {out.data(), rows, kWidth, kStride});
      for (Index t = 0; t < rows; ++t) {
        const double* row = out.data() + t * kStride;
        CHECK(std::equal(row, row + kWidth, read.data() + t * kWidth));
        CHECK(row[kWidth] == 0.125);
      }
    }
  }
}

TEST_CASE("every codec: what comes back is near, and its bytes are as many as it says") {
  const Numbers x = vectors();
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    const MadeCodec of = made_of(point, x);
    REQUIRE(of.codec->group() >= 1);
    REQUIRE(kVectors % static_cast<std::size_t>(of.codec->group()) == 0);
    REQUIRE(of.codec->bytes() > 0);
    CHECK(of.codec->bytes() < of.codec->group() * kWidth * 8);
    // A byte beyond a block stays as it is.
    Bytes code(static_cast<std::size_t>(of.codec->bytes()) + 1, std::byte{0xa5});
    of.codec->encode({x.data(), of.codec->group(), kWidth}, code.data());
    CHECK(code.back() == std::byte{0xa5});
    Numbers block(static_cast<std::size_t>(of.codec->group() * kWidth) + 1, 0.125);
    of.codec->decode(code.data(), {block.data(), of.codec->group(), kWidth});
    CHECK(block.back() == 0.125);

    const Numbers y = decoded(*of.codec, kWidth, encoded(*of.codec, kWidth, x));
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(std::isfinite(y[i]));
      error += (y[i] - x[i]) * (y[i] - x[i]);
      size += x[i] * x[i];
    }
    CHECK(error < size);
  }
}

TEST_CASE("every codec: the same bytes again, and no bytes that it does not write") {
  const Numbers x = vectors();
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    const MadeCodec of = made_of(point, x);
    const Bytes bytes = encoded(*of.codec, kWidth, x);
    const MadeCodec again = made_of(point, x);
    CHECK(encoded(*again.codec, kWidth, x) == bytes);
    Bytes other(static_cast<std::size_t>(of.codec->bytes()), std::byte{0xff});
    of.codec->encode({x.data(), of.codec->group(), kWidth}, other.data());
    CHECK(std::equal(other.begin(), other.end(), bytes.begin()));
  }
}

TEST_CASE("every codec: a block does not depend on the blocks beside it") {
  const Numbers x = vectors();
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    const MadeCodec of = made_of(point, x);
    const auto block = static_cast<std::ptrdiff_t>(of.codec->group() * kWidth);
    Numbers reversed;
    for (auto end = x.end(); end != x.begin(); end -= block) {
      reversed.insert(reversed.end(), end - block, end);
    }
    const Bytes forward = encoded(*of.codec, kWidth, x);
    const Bytes backward = encoded(*of.codec, kWidth, reversed);
    const auto bytes = static_cast<std::ptrdiff_t>(of.codec->bytes());
    for (auto at = forward.begin(), other = backward.end(); at != forward.end(); at += bytes) {
      other -= bytes;
      REQUIRE(std::equal(at, at + bytes, other));
    }
  }
}

TEST_CASE("every codec: what is stored does not fall as more is held, in whole blocks") {
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    const MadeCodec of = made_of(point, vectors());
    for (const Index prompt : {0, 50, 700}) {
      Index before = 0;
      for (Index held = 0; held <= 900; ++held) {
        const Index written = of.codec->written(held, prompt);
        REQUIRE(written >= before);
        REQUIRE(written <= held);
        REQUIRE(written % of.codec->group() == 0);
        before = written;
      }
    }
  }
}

TEST_CASE("every codec: zeros come back as zeros") {
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    for (const double number : back(point, filled(0.0))) REQUIRE(number == 0.0);
  }
}

TEST_CASE("every codec: one number everywhere comes back as near as promised") {
  for (const Tried& point : every_point()) {
    if (point.constant == kNone) continue;
    CAPTURE(point.text());
    for (const double number : {1.0, -0.3, 7.1, 0.107}) {
      for (const double y : back(point, filled(number))) {
        REQUIRE(std::fabs(y - number) <= point.constant * std::fabs(number) * (1 + 1e-6));
      }
    }
  }
}

TEST_CASE("every codec that promises it: what it decoded it encodes without error") {
  const Numbers x = vectors();
  for (const Tried& point : every_point()) {
    if (!point.idempotent) continue;
    CAPTURE(point.text());
    const MadeCodec of = made_of(point, x);
    const Numbers once = decoded(*of.codec, kWidth, encoded(*of.codec, kWidth, x));
    CHECK(decoded(*of.codec, kWidth, encoded(*of.codec, kWidth, once)) == once);
  }
}

TEST_CASE("every codec that promises it: of twice the numbers it makes twice as much") {
  // Normal numbers of every format.
  Numbers x = vectors();
  for (double& number : x) number = std::copysign(std::max(std::fabs(number), 0x1p-6), number);
  for (const Tried& point : every_point()) {
    if (!point.doubles) continue;
    CAPTURE(point.text());
    Numbers twice = x;
    for (double& number : twice) number *= 2;
    Numbers expected = back(point, x);
    for (double& number : expected) number *= 2;
    CHECK(back(point, twice) == expected);
  }
}

TEST_CASE("every codec: huge numbers come back finite or are an error") {
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    for (const double size : {6e4, 1e6, 1e30, 1e39, 1e300, std::numeric_limits<double>::max()}) {
      Numbers x = vectors();
      for (double& number : x) number = std::max(std::min(number / 16, 1.0), -1.0) * size;
      try {
        for (const double number : back(point, x)) REQUIRE(std::isfinite(number));
      } catch (const CellError&) {
        CHECK((size > 6e4 || point.stores_norm));
      }
    }
  }
}

TEST_CASE("every codec: tiny numbers come back as tiny ones") {
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    for (const double size : {1e-30, 1e-40, 1e-300, 1e-320}) {
      Numbers x = vectors();
      for (double& number : x) number *= size;
      for (const double number : back(point, x)) REQUIRE(std::fabs(number) <= 32 * size + 1e-37);
    }
  }
}

TEST_CASE("every codec: an odd width is written, or refused with what to do") {
  for (const Tried& point : every_point()) {
    CAPTURE(point.text());
    for (const Index width : {1, 7, 33, 48, 80}) {
      const std::string reason = skip_of(point.id, point.given, width, point.tensor);
      if (!reason.empty()) {
        CHECK(reason.find("choose") != std::string::npos);
        continue;
      }
      Numbers x;
      for (Index i = 0; i < 128 * width; ++i) x.push_back(std::sin(0.1 * static_cast<double>(i)));
      const MadeCodec of = made(point.id, point.given, width, x, point.tensor);
      for (const double y : decoded(*of.codec, width, encoded(*of.codec, width, x))) {
        REQUIRE(std::isfinite(y));
      }
    }
  }
}

TEST_CASE("every codec is described") {
  std::set<std::string> ids;
  for (const CodecDescription& codec : all_codecs()) {
    CAPTURE(codec.id);
    CHECK(ids.insert(codec.id).second);
    CHECK(find_codec(codec.id) == &codec);
    CHECK_FALSE(codec.title.empty());
    CHECK_FALSE(codec.source.empty());
    CHECK_FALSE(codec.bits.empty());
    CHECK((codec.of_keys || codec.of_values));
    for (const Parameter& parameter : codec.parameters) CHECK_FALSE(parameter.doc.empty());
  }
  CHECK(find_codec("q4_2") == nullptr);
}

}  // namespace every_codec_test
}  // namespace kvbench::test
