// 11. Rows of the prompt, of algorithms that say they answer them: as if there were no prompt.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "conformance/points.hpp"
#include "replay/replay.hpp"
#include "support/algorithm_named.hpp"
#include "support/equal_reports.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace prompt_rows_test {

constexpr Index kPrompt = 32;

class Answers final : public ReplayWatch {
 public:
  void kept(Index row, bool, const Sketch&) override { kept_rows.push_back(row); }
  void answered(Index, Index, const Answer& answer) override { all.push_back(answer.answer); }

  std::vector<std::vector<double>> all;  // by scored row, then query head
  std::vector<Index> kept_rows;
};

struct Run {
  std::vector<std::vector<double>> answers;
  std::vector<Index> kept_rows;
  CellResult result;
};

Run run(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
        const Params& params, const std::vector<Index>& rows) {
  const SharedResults scope = decided(algorithm, params, 5, stream, prompt);
  const bool of_head = algorithm.replay_scope(params) == ReplayScope::kHead;
  Answers answers;
  Run out;
  replay(stream, {.prompt = prompt, .rows = rows},
         {{&algorithm, params, 5, of_head ? nullptr : &scope, &answers}}, cpu_kernels(),
         [&](std::size_t, CellResult&& result) { out.result = std::move(result); });
  REQUIRE_MESSAGE(!out.result.failed, out.result.reason);
  out.answers = std::move(answers.all);
  out.kept_rows = std::move(answers.kept_rows);
  return out;
}

std::vector<Index> every(Index step, Index first, Index end) {
  std::vector<Index> rows;
  for (Index row = first; row < end; row += step) rows.push_back(row);
  return rows;
}

const std::vector<StreamSpec> kSpecs = {
    {.tokens = 48, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 2, .rope_pairs = 2},
    {.tokens = 48, .d = 4, .dv = 3, .window = 19},
    {.tokens = 48, .d = 4, .dv = 3, .heads_per_kv = 2, .sinks = true, .alibi = true},
    {.tokens = 48, .d = 4, .dv = 3, .chunk = 11},
    {.tokens = 48, .d = 3, .dv = 3, .softcap = 3, .kind = StreamKind::kClustered}};

TEST_CASE("a row of the prompt is answered as if there were no prompt, whatever else is scored") {
  std::set<std::string> ran;
  for (const StreamSpec& spec : kSpecs) {
    const auto owned = make_stream(repeating(spec, kPrompt));
    for (const Subject& subject : subjects()) {
      const AlgorithmDescription& algorithm = *subject.algorithm;
      if (!algorithm.answers_prompt_rows) continue;
      for (const Point& point : subject.row->points) {
        const Params params = params_for(algorithm, point.given);
        const StreamShape& shape = owned->stream.shape;
        if (reason_to_skip(algorithm, params, shape, kPrompt) ||
            reason_to_skip(algorithm, params, shape, 0)) {
          continue;
        }
        CAPTURE(describe(subject.row->id, point.given));
        CAPTURE(spec.window);
        CAPTURE(spec.chunk);
        ran.insert(algorithm.id);
        const Run all = run(owned->stream, kPrompt, algorithm, params, every(1, 0, kPrompt));
        if (!algorithm.masks_prompt) {
          const Run alone = run(owned->stream, 0, algorithm, params, every(1, 0, kPrompt));
          CHECK(all.answers == alone.answers);
          CHECK(all.result.metrics["errors.relative_l2.max"] ==
                alone.result.metrics["errors.relative_l2.max"]);
        }

        const Run some = run(owned->stream, kPrompt, algorithm, params, every(5, 3, kPrompt));
        const auto heads = static_cast<std::size_t>(spec.heads_per_kv);
        for (std::size_t i = 0; i < some.answers.size(); ++i) {
          const std::size_t row = 3 + 5 * (i / heads);
          CHECK(some.answers[i] == all.answers[row * heads + i % heads]);
        }
        // Memory is that of decode rows, whatever is scored.
        const Run decoded =
            run(owned->stream, kPrompt, algorithm, params, every(1, kPrompt, shape.tokens));
        CHECK(all.kept_rows == every(1, kPrompt, shape.tokens));
        check_equal(all.result.memory, decoded.result.memory);
        // Rows on both sides of the prompt's end.
        const Run both = run(owned->stream, kPrompt, algorithm, params, every(1, 0, shape.tokens));
        std::vector<std::vector<double>> expected = all.answers;
        expected.insert(expected.end(), decoded.answers.begin(), decoded.answers.end());
        CHECK(both.answers == expected);
      }
    }
  }
  std::set<std::string> saying;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    if (algorithm.answers_prompt_rows) saying.insert(algorithm.id);
  }
  CHECK(ran == saying);
  for (const char* id : {"exact", "window", "dilated_window", "streaming_llm", "oracle_topk"}) {
    CHECK(saying.count(id) == 1);
  }
}

TEST_CASE("answers that depend on the prompt's end differ from those without a prompt") {
  const auto owned = make_stream(repeating(kSpecs.front(), kPrompt));
  for (const auto& [id, given] :
       {std::pair<const char*, Given>{"snapkv", {{"budget", count_of(8)}, {"window", count_of(4)}}},
        {"loki", {{"budget", count_of(6)}, {"rank", count_of(2)}}},
        {"h2o", {{"budget", count_of(6)}}}}) {
    CAPTURE(id);
    const AlgorithmDescription& algorithm = algorithm_named(id);
    CHECK(!algorithm.answers_prompt_rows);
    const Params params = params_for(algorithm, given);
    if (reason_to_skip(algorithm, params, owned->stream.shape, 0)) continue;
    const auto rows = every(1, 0, kPrompt);
    CHECK(run(owned->stream, kPrompt, algorithm, params, rows).answers !=
          run(owned->stream, 0, algorithm, params, rows).answers);
  }
}

}  // namespace prompt_rows_test
}  // namespace kvbench::test
