// think: worked channels, and its facts.
#include <doctest/doctest.h>

#include <cmath>

#include "codec_support.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace think_test {

Given ratio(double share) { return {{"ratio", Value{share}}}; }

std::unique_ptr<Codec> think(const Stream& stream, Index prompt, const Given& given) {
  const CodecDescription& codec = codec_named("think");
  return codec.create(codec_params(codec, given), {stream, prompt, 0, CacheTensor::kKeys});
}

// Channels of (1, .., 1) that come back.
std::vector<Index> kept(const Codec& codec, Index d) {
  const Numbers back =
      decoded(codec, d, encoded(codec, d, Numbers(static_cast<std::size_t>(d), 1)));
  std::vector<Index> out;
  for (Index c = 0; c < d; ++c) {
    if (back[c] == 1.0) out.push_back(c);
  }
  return out;
}

// Two query heads, a prompt of three tokens and one after it.
std::unique_ptr<OwnedStream> worked() {
  return stream_of({{1, 2, 0, 1}, {1, 0, 0, 1}, {1, 0, 9, 1}, {9, 9, 9, 9}}, {{1}, {1}, {1}, {1}},
                   {{{9, 9, 9, 9}, {2, 1, 0, 1}, {2, 1, 1, 1}, {0, 0, 9, 9}},
                    {{9, 9, 9, 9}, {0, 1, 0, 1}, {0, 1, 0, 1}, {0, 0, 9, 9}}});
}

TEST_CASE("worked: sums of squares of the last two prompt rows times those of the prompt's keys") {
  const auto owned = worked();
  // Queries 8, 4, 1, 4 times keys 3, 4, 81, 3 is 24, 16, 81, 12.
  Given given = ratio(0.25);
  given.emplace_back("window", Value{std::int64_t{2}});
  CHECK(kept(*think(owned->stream, 3, given), 4) == std::vector<Index>{0, 1, 2});
  given[0].second = Value{0.5};
  CHECK(kept(*think(owned->stream, 3, given), 4) == std::vector<Index>{0, 2});
  given[0].second = Value{0.9};  // three channels
  CHECK(kept(*think(owned->stream, 3, given), 4) == std::vector<Index>{2});
  // Rows before the prompt's first are none.
  given[1].second = Value{std::int64_t{100}};
  CHECK(kept(*think(owned->stream, 3, given), 4) == std::vector<Index>{2});
}

TEST_CASE("of equal scores the higher channel goes; ratio 0 keeps all, to the bit") {
  auto owned = make_stream({.tokens = 12, .d = 8});
  for (double& x : owned->keys) x = 1.0;
  for (double& x : owned->queries[0]) x = 1.0;
  CHECK(kept(*think(owned->stream, 10, ratio(0.5)), 8) == std::vector<Index>{0, 1, 2, 3});
  const auto all = think(owned->stream, 10, ratio(0.0));
  const Numbers x = {1.1, -2.2, 1e300, 5e-324, 0.0, -0.0, 1e-9, 3.0};
  CHECK(decoded(*all, 8, encoded(*all, 8, x)) == x);
}

TEST_CASE("a channel that is 0 in all prompt keys goes first; longer queries choose the same") {
  auto owned = make_stream({.tokens = 40, .d = 8, .heads_per_kv = 2});
  for (std::size_t i = 5; i < owned->keys.size(); i += 8) owned->keys[i] = 0.0;
  const std::vector<Index> before = kept(*think(owned->stream, 30, ratio(0.125)), 8);
  CHECK(before == std::vector<Index>{0, 1, 2, 3, 4, 6, 7});
  const std::vector<Index> fewer = kept(*think(owned->stream, 30, ratio(0.5)), 8);
  for (const double factor : {3.7, 1e200, 1e-200}) {
    auto other = make_stream({.tokens = 40, .d = 8, .heads_per_kv = 2});
    other->keys = owned->keys;
    for (auto& head : other->queries) {
      for (double& x : head) x *= factor;
    }
    other->connect();
    CHECK(kept(*think(other->stream, 30, ratio(0.5)), 8) == fewer);
  }
}

TEST_CASE("what is decided follows from the visible prompt alone") {
  const auto owned = make_stream({.tokens = 60, .d = 8, .window = 12});
  const auto future = with_other_future(owned->stream, 40, 99);
  auto past = make_stream({.tokens = 60, .d = 8, .window = 12});
  for (std::size_t i = 0; i < 29 * 8; ++i) past->keys[i] *= 100.0;  // before token 29
  Given given = ratio(0.5);
  given.emplace_back("window", Value{std::int64_t{8}});
  const std::vector<Index> channels = kept(*think(owned->stream, 40, given), 8);
  CHECK(kept(*think(future->stream, 40, given), 8) == channels);
  CHECK(kept(*think(past->stream, 40, given), 8) == channels);
}

TEST_CASE("prompt keys but the last keep_recent are written; numbers count as the memory's do") {
  const auto owned = make_stream({.tokens = 60, .d = 8});
  const auto codec = think(owned->stream, 50, ratio(0.5));
  CHECK(codec->written(60, 50) == 18);
  CHECK(codec->written(50, 50) == 18);
  CHECK(codec->written(20, 20) == 0);
  CHECK(codec->bytes() == 4 * 8);
  CHECK(codec->counted_bytes() == 4 * 2);
  CHECK(codec->shared_bytes() == 1);
  const CodecDescription& description = codec_named("think");
  const auto in_float = description.create(codec_params(description, ratio(0.25)),
                                           {owned->stream, 50, 0, CacheTensor::kKeys, 4});
  CHECK(in_float->counted_bytes() == 6 * 4);
  CHECK_FALSE(description.of_values);
  CHECK_FALSE(description.randomised(codec_params(description, {})));
}

TEST_CASE("a dump without the queries of the last prompt rows is refused") {
  const CodecDescription& codec = codec_named("think");
  StreamShape shape;
  shape.tokens = 100;
  shape.d = 8;
  shape.first_query = 50;
  const auto skip = [&](Index prompt) {
    return codec.skip_reason(codec_params(codec, {}), shape, CacheTensor::kKeys, prompt)
        .value_or("");
  };
  CHECK(skip(82).empty());
  CHECK(skip(81).find("rows 49 to 80") != std::string::npos);
}

}  // namespace think_test
}  // namespace kvbench::test
