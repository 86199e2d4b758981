// Logits that leave the doubles, wholly or on the way to a finite sum, and answers that do.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "kernels/cpu_kernels.hpp"
#include "metrics/reference.hpp"
#include "support/owned_stream.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace reference_overflow_test {

// 8 tokens of 64 dimensions, queries of ones, keys (0.001, 0, ..) of the sign -1.
std::unique_ptr<OwnedStream> small_keys(double scale) {
  auto owned = make_stream({.tokens = 8, .d = 64, .dv = 2});
  owned->stream.shape.scale = scale;
  std::fill(owned->queries[0].begin(), owned->queries[0].end(), 1.0);
  std::fill(owned->keys.begin(), owned->keys.end(), 0.0);
  for (std::size_t j = 0; j < 8; ++j) owned->keys[j * 64] = -1e-3;
  return owned;
}

std::string reason(const OwnedStream& owned, const std::vector<Index>& rows) {
  try {
    make_reference(cpu_kernels(), owned.stream, rows);
  } catch (const CellError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE(
    "a finite logit with infinite partial sums is an overflow at the first row that sees it") {
  const auto owned = small_keys(1e308);
  CHECK(reason(*owned, {5, 7}).empty());
  // The logit of token 6 is 32 1e308 - 32 1e308 = 0.
  for (std::size_t k = 0; k < 64; ++k) owned->keys[6 * 64 + k] = k < 32 ? -1.0 : 1.0;
  CHECK(reason(*owned, {5}).empty());
  CHECK(reason(*owned, {5, 6, 7}) == "logits overflow at row 6, query head 0 of the group");
  // Two numbers of 0.5 add up to 1e308 on the way.
  for (std::size_t k = 0; k < 64; ++k)
    owned->keys[6 * 64 + k] = k < 2 ? 0.5 - static_cast<double>(k) : 0.0;
  CHECK(reason(*owned, {5, 6, 7}).empty());
}

TEST_CASE("products of a query and a key overflow although a small scale makes logits finite") {
  const auto owned = small_keys(1e-300);
  std::fill(owned->queries[0].begin(), owned->queries[0].end(), 1e200);
  CHECK(reason(*owned, {7}).empty());
  owned->keys[3 * 64] = 1e200;
  CHECK(reason(*owned, {2}).empty());
  CHECK(reason(*owned, {2, 7}) == "logits overflow at row 7, query head 0 of the group");
}

TEST_CASE("a scaled query that overflows fails, however small the keys are") {
  const auto owned = small_keys(1e200);
  for (std::size_t j = 0; j < 8; ++j) owned->keys[j * 64] = 1e-300;
  CHECK(reason(*owned, {7}).empty());
  std::fill_n(owned->queries[0].begin() + 7 * 64, 64, 1e150);
  CHECK(reason(*owned, {6, 7}) == "logits overflow at row 7, query head 0 of the group");
}

TEST_CASE("a sink so far above all logits that the answer is 0 is told, and a lower one answers") {
  const auto owned = make_stream({.tokens = 8, .d = 4, .dv = 2, .heads_per_kv = 2, .sinks = true});
  for (const double gap : {300.0, 600.0}) {
    owned->stream.sinks = {0.0, gap};
    CHECK(reason(*owned, {5, 7}).empty());
  }
  for (const double gap : {720.0, 5000.0}) {
    owned->stream.sinks = {0.0, gap};
    CHECK(
        reason(*owned, {5, 7}) ==
        "the sink of query head 1 of the group is so far above the logits at row 5 that the exact "
        "answer underflows; check the sink and the scale");
  }
  std::fill(owned->values.begin(), owned->values.end(), 0.0);  // the answer is 0 in any case
  CHECK(reason(*owned, {5, 7}).empty());
}

}  // namespace reference_overflow_test
}  // namespace kvbench::test
