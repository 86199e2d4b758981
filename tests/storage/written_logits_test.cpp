// Logits of written keys, made for many rows at a time, against one canonical product each.
#include "storage/written_logits.hpp"

#include <doctest/doctest.h>

#include <utility>

#include "numerics/canonical.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace written_logits_test {

double logit(const Stream& stream, int head, Index row, const double* key, Index j) {
  const StreamShape& shape = stream.shape;
  const double x = shape.scale * canonical_dot(stream.query(head, row), key, shape.d);
  const double capped = shape.softcap > 0.0 ? canonical_softcap(x, shape.softcap) : x;
  if (!shape.alibi) return capped;
  return alibi_logit(capped, stream.alibi_slopes[head], j - row);
}

TEST_CASE("logits are canonical to the bit, whenever a token was written and whatever else is") {
  for (const auto& [softcap, alibi] : {std::pair{0.0, false}, {2.0, false}, {2.0, true}}) {
    const auto owned = make_stream(
        {.tokens = 400, .d = 9, .dv = 3, .heads_per_kv = 3, .softcap = softcap, .alibi = alibi});
    const Stream& stream = owned->stream;
    std::vector<double> keys(owned->keys);
    for (double& x : keys) x = 0.5 * x + 1.0;
    const ConstMatrix decoded{keys.data(), 400, 9};
    WrittenLogits logits(stream);
    std::vector<Index> rows;
    for (Index row = 300; row < 400; row += 2) rows.push_back(row);
    logits.expect(rows);
    for (const Index row : rows) {
      // The first 250 tokens, one more every row, and those that some rows hold alone.
      std::vector<std::int32_t> tokens;
      for (std::int32_t j = 0; j < row - 50; ++j) {
        if (j % 7 != row % 5) tokens.push_back(j);
      }
      logits.go_to(row, tokens, decoded);
      for (int head = 0; head < 3; ++head) {
        const double* x = logits.of_head(head);
        for (const std::int32_t j : tokens) {
          CHECK(x[j] == logit(stream, head, row, decoded.row(j), j));
        }
      }
    }
  }
}

TEST_CASE("a caller may write the other tokens' places, and rows may be left out") {
  const auto owned = make_stream({.tokens = 64, .d = 8, .dv = 8, .heads_per_kv = 1});
  const Stream& stream = owned->stream;
  WrittenLogits logits(stream);
  logits.expect({40, 41, 50, 60});
  logits.go_to(40, {0, 1}, stream.keys);
  logits.of_head(0)[2] = 7.0;
  logits.go_to(60, {0, 1, 2}, stream.keys);
  CHECK(logits.of_head(0)[2] == logit(stream, 0, 60, stream.keys.row(2), 2));
  logits.expect({});
  logits.expect({62});
  logits.go_to(62, {3}, stream.keys);
  CHECK(logits.of_head(0)[3] == logit(stream, 0, 62, stream.keys.row(3), 3));
}

}  // namespace written_logits_test
}  // namespace kvbench::test
