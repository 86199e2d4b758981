// 6. Awkward streams: every metric is finite and equals the naive one.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "conformance/points.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace awkward_streams_test {

struct Awkward {
  const char* name;
  StreamSpec spec;
  double tolerance;
};

std::vector<Awkward> awkward_streams() {
  return {
      {"one token", {.tokens = 1, .d = 3, .dv = 2}, 1e-10},
      {"two tokens", {.tokens = 2, .d = 3, .dv = 2}, 1e-10},
      {"equal keys", {.tokens = 30, .d = 3, .dv = 4, .kind = StreamKind::kEqualKeys}, 1e-10},
      {"zero keys", {.tokens = 30, .d = 3, .dv = 4, .kind = StreamKind::kZeroKeys}, 1e-10},
      {"zero values", {.tokens = 30, .d = 3, .dv = 4, .kind = StreamKind::kZeroValues}, 1e-10},
      {"some zero values",
       {.tokens = 30, .d = 3, .dv = 4, .kind = StreamKind::kSomeZeroValues},
       1e-10},
      {"logits of 1e4", {.tokens = 30, .d = 3, .dv = 4, .kind = StreamKind::kHugeLogits}, 1e-8},
      {"ties", {.tokens = 40, .d = 2, .dv = 2, .kind = StreamKind::kTies}, 1e-10},
      {"d = 43, dv = 41", {.tokens = 30, .d = 43, .dv = 41}, 1e-10},
      {"d = 3, dv = 17, three heads", {.tokens = 30, .d = 3, .dv = 17, .heads_per_kv = 3}, 1e-10},
      {"eight heads", {.tokens = 30, .d = 5, .dv = 5, .heads_per_kv = 8}, 1e-10},
      {"sliding window", {.tokens = 40, .d = 4, .dv = 4, .window = 9}, 1e-10},
      {"window of one", {.tokens = 20, .d = 4, .dv = 4, .window = 1}, 1e-10},
      {"RoPE",
       {.tokens = 40, .d = 6, .dv = 4, .heads_per_kv = 2, .query_size = 2, .rope_pairs = 3},
       1e-10},
      {"RoPE, interleaved, part of the dimensions",
       {.tokens = 40, .d = 7, .dv = 4, .rope_pairs = 2, .rope_interleaved = true},
       1e-10},
      {"soft-cap", {.tokens = 30, .d = 4, .dv = 4, .softcap = 1.5, .query_size = 5}, 1e-10},
      {"sinks",
       {.tokens = 40, .d = 6, .dv = 4, .heads_per_kv = 2, .rope_pairs = 3, .sinks = true},
       1e-10},
      {"sinks and a window", {.tokens = 40, .d = 4, .dv = 4, .window = 9, .sinks = true}, 1e-10},
      {"ALiBi",
       {.tokens = 40, .d = 6, .dv = 4, .heads_per_kv = 2, .rope_pairs = 3, .alibi = true},
       1e-10},
      {"ALiBi, soft-cap and sinks",
       {.tokens = 30, .d = 4, .dv = 4, .softcap = 3, .query_size = 3, .sinks = true, .alibi = true},
       1e-10},
      {"every token", {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .causal = false}, 1e-10},
      {"every token, sinks",
       {.tokens = 30, .d = 4, .dv = 4, .sinks = true, .causal = false},
       1e-10},
      {"chunks of 7", {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .chunk = 7}, 1e-10},
      {"chunks of one", {.tokens = 20, .d = 4, .dv = 4, .chunk = 1}, 1e-10},
      {"values in keys", {.tokens = 30, .d = 6, .dv = 4, .value_in_key = true}, 1e-10},
  };
}

// The naive report, in long doubles. Where its error is too large for a double, the metric is null
// or the cell fails.
void check_point(const Awkward& stream, const OwnedStream& owned, Index prompt,
                 const Subject& subject, const Given& given, Cases& cases) {
  const Params params = params_for(*subject.algorithm, given);
  if (!cases.runs(subject, given, params, owned.stream.shape, prompt)) return;
  const std::vector<Index> rows = decode_rows(owned.stream, prompt);
  const NaiveReport naive = naive_report(
      owned.stream, rows, sketches(owned.stream, prompt, *subject.algorithm, params, 6));
  const std::optional<double> error = naive.numbers.at("errors.relative_frobenius_error");
  if (error && !std::isfinite(*error)) {
    try {
      const CellResult far = replay_one(owned.stream, prompt, *subject.algorithm, params, 6);
      CHECK(!far.metrics["errors.relative_frobenius_error"]);
    } catch (const std::runtime_error&) {  // the cell failed
    }
    return;
  }
  const CellResult result = replay_one(owned.stream, prompt, *subject.algorithm, params, 6);
  for (const NamedPair& pair : paired_metrics(result.metrics, naive)) {
    CAPTURE(pair.path);
    CHECK(std::isnan(pair.a) == !std::isfinite(pair.b));  // null where it overflowed
    if (!std::isfinite(pair.b)) continue;
    CHECK(std::isfinite(pair.a));
    // Where no component is positive this metric divides rounding errors by 1e-8.
    const double rounding = pair.path == "errors.relative_l2_posclamp_mean" ? 1e-7 : 0.0;
    CHECK(std::fabs(pair.a - pair.b) <= stream.tolerance * (std::fabs(pair.b) + 1e-3) + rounding);
  }
  CHECK(undefined_rows_agree(result.undefined_rows, naive));
}

TEST_CASE("every algorithm is finite and right on awkward streams") {
  Cases cases;
  for (const Awkward& awkward : awkward_streams()) {
    const auto owned = make_stream(awkward.spec);
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        for (const Index prompt : prompts_of(awkward.spec)) {
          CAPTURE(std::string(awkward.name));
          CAPTURE(describe(subject.row->id, point.given));
          CAPTURE(prompt);
          check_point(awkward, *owned, prompt, subject, point.given, cases);
        }
      }
    }
  }
  cases.check_all_ran();
}

}  // namespace awkward_streams_test
}  // namespace kvbench::test
