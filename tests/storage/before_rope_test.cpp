// Keys that are written before RoPE, against codecs of keys that RoPE never turned.
#include "storage/before_rope.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "algorithms/registry.hpp"
#include "codec_support.hpp"
#include "storage/stored_cache.hpp"
#include "support/given.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace before_rope_test {

constexpr Index kTokens = 24;
constexpr Index kPrompt = 16;
constexpr Index kWidth = 8;

Value word(const char* text) { return Value{std::string(text)}; }

Storage keys_as(const std::string& id, const Given& given) {
  const CodecDescription& codec = codec_named(id);
  return {{&codec, codec_params(codec, given)}, {}};
}

Storage before(const std::string& id, Given given) {
  given.emplace_back("rope", word("before"));
  return keys_as(id, given);
}

// Largest difference of a written key from the plain stream's, turned to its position.
double worst(const RopeStream& streams, const Storage& storage, const Storage& plain,
             const std::vector<std::int32_t>& tokens) {
  const StoredStream turned(streams.turned->stream, kPrompt, storage, 0);
  const StoredStream unturned(streams.plain->stream, kPrompt, plain, 0);
  HeldTensor held(turned.keys(), kPrompt);
  HeldTensor naive(unturned.keys(), kPrompt);
  held.hold(tokens, false);
  naive.hold(tokens, false);
  double out = 0.0;
  Index written = 0;
  for (const std::int32_t token : tokens) {
    REQUIRE(held.is_written(token) == naive.is_written(token));
    const double* read = held.row(token);
    if (!held.is_written(token)) {
      CHECK(read == streams.turned->stream.keys.row(token));
      continue;
    }
    ++written;
    const double* row = naive.row(token);
    const std::vector<Real> expected = naive_rotated(*streams.plain->stream.shape.rope,
                                                     std::vector<Real>(row, row + kWidth), token);
    for (Index k = 0; k < kWidth; ++k) {
      out = std::max(
          out, std::fabs(static_cast<double>(expected[static_cast<std::size_t>(k)]) - read[k]));
    }
  }
  CHECK(written > 0);
  return out;
}

TEST_CASE("a key is what the codec makes of it before RoPE, turned to its position") {
  std::vector<std::int32_t> all(kTokens);
  for (std::size_t j = 0; j < all.size(); ++j) all[j] = static_cast<std::int32_t>(j);
  const std::vector<std::int32_t> some = {1, 2, 4, 7, 8, 11, 15, 16, 20, 23};  // groups of others
  for (const bool interleaved : {false, true}) {
    for (const Index rotated : {Index{8}, Index{6}}) {
      const RopeStream streams =
          make_rope_stream({.tokens = kTokens, .d = kWidth, .dv = 4}, rotated, interleaved);
      const Given groups = {{"per", word("channel")}, {"group", Value{std::int64_t{4}}}};
      const Given mean = {{"centre", word("mean")}};
      for (const auto& [id, given] : std::vector<std::pair<std::string, Given>>{
               {"bf16", {}}, {"token", {}}, {"token", mean}, {"int", groups}}) {
        CAPTURE(id);
        CHECK(worst(streams, before(id, given), keys_as(id, given), all) < 1e-12);
        CHECK(worst(streams, before(id, given), keys_as(id, given), some) < 1e-12);
      }
      // After RoPE the codec writes other numbers.
      CHECK(worst(streams, keys_as("token", {}), keys_as("token", {}), all) > 1e-3);
    }
  }
}

TEST_CASE("values, a layer without RoPE data and a method's own vectors are refused") {
  const Given given = {{"rope", word("before")}};
  CHECK(skip_of("q8_0", given, 32).find("no RoPE data for this layer") != std::string::npos);
  CHECK(skip_of("q8_0", given, 32, CacheTensor::kValues).find("for keys") != std::string::npos);
  const RopeStream streams = make_rope_stream({.tokens = kTokens, .d = kWidth, .dv = 4}, 8, false);
  const auto reason = [&](const std::string& id, const Given& of) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    return reason_to_skip(before("bf16", {}), algorithm, params_for(algorithm, of),
                          streams.turned->stream.shape, kPrompt)
        .value_or("");
  };
  CHECK(reason("exact", {}).empty());
  CHECK(reason("d2o", {{"budget", Value{std::int64_t{8}}}}).find("have no position") !=
        std::string::npos);
}

}  // namespace before_rope_test
}  // namespace kvbench::test
