// 12. A reading method over what another one kept: with nothing evicted it is the reading method
// alone, and with everything read the other one alone, to the bit.
#include "algorithms/composition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "conformance/points.hpp"
#include "replay/replay.hpp"
#include "support/algorithm_named.hpp"
#include "support/equal_reports.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace composition_test {

constexpr Index kPrompt = 35;

CellResult replayed(const Stream& stream, const AlgorithmDescription& algorithm,
                    const Params& params) {
  const SharedResults scope = decided(algorithm, params, 3, stream, kPrompt);
  ReplayCell cell{&algorithm, params, 3};
  if (algorithm.replay_scope(params) != ReplayScope::kHead) cell.model_results = &scope;
  CellResult out;
  replay(stream, {.prompt = kPrompt, .rows = {kPrompt, 44, stream.shape.tokens - 1}}, {cell},
         cpu_kernels(), [&](std::size_t, CellResult&& result) { out = std::move(result); });
  REQUIRE_MESSAGE(!out.failed, out.reason);
  return out;
}

void check_same_bits(const CellResult& a, const CellResult& b) {
  for (const NamedPair& pair : paired_metrics(a.metrics, b.metrics)) {
    CAPTURE(pair.path);
    CHECK((pair.a == pair.b || (std::isnan(pair.a) && std::isnan(pair.b))));
  }
  check_equal(a.memory, b.memory);
  check_equal(a.traffic, b.traffic);
}

// Parameters of a pair.
Params joined(const Params& first, const Params& reader) {
  Params all = first;
  for (const auto& [name, value] : reader.entries()) all.set(kThen + name, value);
  return all;
}

std::vector<std::unique_ptr<OwnedStream>> streams() {
  std::vector<std::unique_ptr<OwnedStream>> all;
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2},
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .softcap = 3, .sinks = true},
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 2, .value_in_key = true}};
  for (const StreamSpec& spec : specs) all.push_back(make_stream(repeating(spec, kPrompt)));
  return all;
}

TEST_CASE("after a method that keeps everything, a reading method is what it is alone") {
  std::set<std::string> ran;
  const AlgorithmDescription& exact = algorithm_named("exact");
  for (const auto& owned : streams()) {
    for (const Subject& subject : subjects()) {
      const AlgorithmDescription& reader = *subject.algorithm;
      if (!reader.reads) continue;
      const auto pair = composition(exact, reader);
      for (const Point& point : subject.row->points) {
        const Params alone = params_for(reader, point.given);
        const Params params = joined({}, alone);
        CAPTURE(describe(subject.row->id, point.given));
        CHECK(reader.never_evicts(alone));
        CHECK(reader.needs(alone).row_logits);
        CHECK(pair->validate(params).has_value() == reader.needs(alone).positions);
        if (pair->validate(params)) continue;
        const auto skipped = reason_to_skip(reader, alone, owned->stream.shape, kPrompt);
        CHECK(skipped.has_value() ==
              reason_to_skip(*pair, params, owned->stream.shape, kPrompt).has_value());
        if (skipped) continue;
        ran.insert(reader.id);
        check_same_bits(replayed(owned->stream, *pair, params),
                        replayed(owned->stream, reader, alone));
      }
    }
  }
  CHECK(ran.size() == std::ranges::count_if(subjects(), [](const Subject& subject) {
          return subject.algorithm->reads;
        }));
  CHECK(ran.size() > 8);
}

TEST_CASE("with everything read, a pair is its first method alone, of which weights say so") {
  std::set<std::string> ran;
  std::set<std::string> weighing;
  const AlgorithmDescription& reader = algorithm_named("oracle_topk");
  const Params all = params_for(reader, {{"budget", std::int64_t{60}}});
  for (const auto& owned : streams()) {
    for (const Subject& subject : subjects()) {
      const AlgorithmDescription& first = *subject.algorithm;
      const auto pair = composition(first, reader);
      for (const Point& point : subject.row->points) {
        const Params alone = params_for(first, point.given);
        if (reason_to_skip(first, alone, owned->stream.shape, kPrompt)) continue;
        CAPTURE(describe(subject.row->id, point.given));
        const Params params = joined(alone, all);
        const auto refused = pair->validate(params);
        CHECK(refused.has_value() == cannot_be_first(first, alone).has_value());
        if (refused) {
          if (first.weighs(alone)) weighing.insert(first.id);
          continue;
        }
        ran.insert(first.id);
        const CellResult both = replayed(owned->stream, *pair, params);
        check_same_bits(both, replayed(owned->stream, first, alone));
      }
    }
  }
  CHECK(ran.size() > 18);
  CHECK(weighing == std::set<std::string>{"attention_matching", "balancekv_prefill", "kcenter",
                                          "softmax_balance", "thinformer", "uniform"});
}

}  // namespace composition_test
}  // namespace kvbench::test
