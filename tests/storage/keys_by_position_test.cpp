// Keys that are written before RoPE, or less a bias, against codecs of keys that RoPE never turned,
// or that never had one.
#include "storage/keys_by_position.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "algorithms/registry.hpp"
#include "codec_support.hpp"
#include "storage/stored_cache.hpp"
#include "support/given.hpp"
#include "support/made_codecs.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace keys_by_position_test {

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

// The same keys with a bias, which RoPE turned with them.
std::unique_ptr<OwnedStream> biased(const RopeStream& streams, const std::vector<double>& bias) {
  std::unique_ptr<OwnedStream> out = truncated(streams.turned->stream, kTokens);
  for (Index j = 0; j < kTokens; ++j) {
    const std::vector<Real> turned = naive_rotated(
        *out->stream.shape.rope, std::vector<Real>(bias.begin(), bias.end()), static_cast<Real>(j));
    for (Index k = 0; k < kWidth; ++k) {
      out->keys[static_cast<std::size_t>(j * kWidth + k)] += static_cast<double>(turned[k]);
    }
  }
  out->stream.shape.key_bias = true;
  out->stream.key_bias = bias;
  return out;
}

// Largest difference of a read key from `expected`'s, plus the bias that RoPE turned.
double worst_less_bias(const Stream& stream, const Storage& storage, const Stream& without,
                       const Storage& plain, const std::vector<std::int32_t>& tokens) {
  const StoredStream with(stream, kPrompt, storage, 0);
  const StoredStream naive(without, kPrompt, plain, 0);
  CHECK(with.keys().codec->shared_bytes() == naive.keys().codec->shared_bytes());
  CHECK(with.keys().codec->bytes() == naive.keys().codec->bytes());
  HeldTensor held(with.keys(), kPrompt);
  HeldTensor expected(naive.keys(), kPrompt);
  held.hold(tokens, false);
  expected.hold(tokens, false);
  double out = 0.0;
  for (const std::int32_t token : tokens) {
    REQUIRE(held.is_written(token) == expected.is_written(token));
    if (!held.is_written(token)) continue;
    const std::vector<Real> turned =
        naive_rotated(*stream.shape.rope,
                      std::vector<Real>(stream.key_bias.begin(), stream.key_bias.end()), token);
    for (Index k = 0; k < kWidth; ++k) {
      const double key = expected.row(token)[k] + static_cast<double>(turned[k]);
      out = std::max(out, std::fabs(key - held.row(token)[k]));
    }
  }
  return out;
}

TEST_CASE("a key less the bias has the error of the key that never had one, in the same bytes") {
  std::vector<std::int32_t> all(kTokens);
  for (std::size_t j = 0; j < all.size(); ++j) all[j] = static_cast<std::int32_t>(j);
  const std::vector<std::int32_t> some = {1, 2, 4, 7, 8, 11, 15, 16, 20, 23};
  const std::vector<double> bias = {96.0, -3.5, 0.25, 40.0, -77.0, 1.0, 0.0, 8.0};
  const Given groups = {{"per", word("channel")}, {"group", Value{std::int64_t{4}}}};
  const Given of_prompt = {{"scale", word("tensor")}};  // the scale is that of what the codec sees
  for (const bool interleaved : {false, true}) {
    for (const Index rotated : {Index{8}, Index{6}}) {
      const RopeStream streams =
          make_rope_stream({.tokens = kTokens, .d = kWidth, .dv = 4}, rotated, interleaved);
      const auto stream = biased(streams, bias);
      for (const auto& [id, given] : std::vector<std::pair<std::string, Given>>{
               {"token", {}}, {"fp8_e4m3", of_prompt}, {"int", groups}}) {
        Given less = given;
        less.emplace_back("centre", word("bias"));
        for (const auto& tokens : {all, some}) {
          CAPTURE(id);
          const Stream& with = stream->stream;
          const Stream& without = streams.turned->stream;
          CHECK(worst_less_bias(with, keys_as(id, less), without, keys_as(id, given), tokens) <
                1e-12);
          CHECK(worst_less_bias(with, before(id, less), without, before(id, given), tokens) <
                1e-12);
          // With the bias the codec writes other numbers.
          CHECK(worst_less_bias(with, keys_as(id, given), without, keys_as(id, given), tokens) >
                1e-3);
        }
      }
    }
  }
}

TEST_CASE("keys less a bias, by hand: quarter turns and whole numbers") {
  const auto owned = stream_of({{11.35, 0.2}, {-0.6, 12.65}, {-9.95, 1.7}}, {{0}, {0}, {0}},
                               {{{1, 0}, {1, 0}, {1, 0}}});
  Stream& stream = owned->stream;
  stream.shape.rope = std::make_shared<Rope>(Rope{{1.5707963267948966}, false});
  stream.shape.key_bias = true;
  stream.key_bias = {10.25, 0.0};
  const CodecDescription codec = step_codec(1.0, 1, 0, on_arrival());
  for (const char* rope : {"after", "before"}) {
    CAPTURE(rope);
    Params params;
    params.set("centre", word("bias"));
    params.set("rope", word(rope));
    const StoredStream stored(stream, 2, {{&codec, params}, {}}, 0);
    const ConstMatrix keys = stored.held().keys;
    const std::vector<std::vector<double>> expected = {{11.25, 0}, {-1, 12.25}, {-10.25, 2}};
    for (Index j = 0; j < 3; ++j) {
      CHECK(keys(j, 0) == doctest::Approx(expected[static_cast<std::size_t>(j)][0]));
      CHECK(keys(j, 1) == doctest::Approx(expected[static_cast<std::size_t>(j)][1]));
    }
  }
}

TEST_CASE("a bias of values, one that the dump lacks, and one that turns unknown are refused") {
  StreamShape shape;
  shape.tokens = shape.d = shape.dv = 32;
  const CodecDescription& codec = codec_named("q8_0");
  const Params params = codec_params(codec, {{"centre", word("bias")}});
  const auto why = [&](CacheTensor tensor) {
    return codec.skip_reason(params, shape, tensor, 16).value_or("");
  };
  CHECK(why(CacheTensor::kValues).find("choose centre mean or none") != std::string::npos);
  CHECK(why(CacheTensor::kKeys).find("the dump has none") != std::string::npos);
  shape.key_bias = true;
  CHECK(why(CacheTensor::kKeys).find("inv_freq [0] if nothing turns keys") != std::string::npos);
  shape.rope = std::make_shared<Rope>(Rope{{0.0}, false});
  CHECK(why(CacheTensor::kKeys).empty());
  const AlgorithmDescription& merges = algorithm_named("d2o");
  const Params budget = params_for(merges, {{"budget", Value{std::int64_t{8}}}});
  CHECK(reason_to_skip({{&codec, params}, {}}, merges, budget, shape, 16).value_or("") ==
        "rope before and centre bias change keys by the positions of their tokens, and d2o makes "
        "vectors of its own, which have no position; choose rope after, and centre mean or none");
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

}  // namespace keys_by_position_test
}  // namespace kvbench::test
