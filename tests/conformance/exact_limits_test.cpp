// 1. Where a budget covers the stream, or nothing is sampled away, the answer is exact attention.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "conformance/points.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {

TEST_CASE("what covers the stream gives exact attention to 1e-10") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 5, .dv = 7, .heads_per_kv = 3, .query_size = 2, .rope_pairs = 2},
      {.tokens = 40, .d = 4, .dv = 4, .window = 13},
      {.tokens = 40, .d = 4, .dv = 4, .softcap = 2.0, .query_size = 4},
      {.tokens = 1, .d = 3, .dv = 2},
      {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .sinks = true},
      {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .sinks = true, .alibi = true},
      {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .sinks = true, .causal = false},
      {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .chunk = 13},
      {.tokens = 40, .d = 5, .dv = 4, .value_in_key = true}};
  Cases cases;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Subject& subject : subjects()) {
      for (const Given& given : subject.row->exact_points(spec.tokens)) {
        for (const Index prompt : prompts_of(spec)) {
          const Params params = params_for(*subject.algorithm, given);
          // Counted per algorithm: some points of the shortest stream are too small to run.
          if (!cases.runs(subject, {}, params, owned->stream.shape, prompt)) continue;
          CAPTURE(describe(subject.row->id, given));
          CAPTURE(prompt);
          const CellResult result =
              replay_one(owned->stream, prompt, *subject.algorithm, params, 3);
          CHECK(*result.metrics["errors.relative_l2.max"] < 1e-10);
          CHECK(*result.metrics["errors.relative_frobenius_error"] < 1e-10);
        }
      }
    }
  }
  std::set<std::string> without;  // no parameters are known to keep everything
  for (const Subject& subject : subjects()) {
    if (subject.row->exact_points(40).empty()) without.insert(subject.row->id);
  }
  CHECK(without.count("given") == 1);
  CHECK(without.size() < subjects().size() / 4);
  cases.check_all_ran(without);
}

}  // namespace kvbench::test
