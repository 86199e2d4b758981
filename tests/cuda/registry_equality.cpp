#include "registry_equality.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "conformance/points.hpp"
#include "replay/replay.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace {

CellResult replayed(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                    const Params& params, const Kernels& kernels) {
  ReplaySetting setting;
  setting.prompt = prompt;
  setting.rows = decode_rows(stream, prompt);
  std::optional<CellResult> out;
  const SharedResults scope = decided(algorithm, params, 6, stream, prompt);
  const bool of_head = algorithm.replay_scope(params) == ReplayScope::kHead;
  replay(stream, setting, {{&algorithm, params, 6, of_head ? nullptr : &scope}}, kernels,
         [&](std::size_t, CellResult&& result) { out = std::move(result); });
  REQUIRE(out.has_value());
  return std::move(*out);
}

void check_equal(const CellResult& a, const CellResult& b) {
  REQUIRE(a.failed == b.failed);
  CHECK(a.reason == b.reason);
  CHECK(a.memory.tokens == b.memory.tokens);
  CHECK(a.memory.tokens_peak == b.memory.tokens_peak);
  CHECK(a.memory.distinct_tokens == b.memory.distinct_tokens);
  CHECK(a.memory.peak_bytes == b.memory.peak_bytes);
  CHECK(a.clusters.has_value() == b.clusters.has_value());
  if (a.clusters && b.clusters) CHECK(a.clusters->trajectory == b.clusters->trajectory);
  CHECK(a.undefined_rows == b.undefined_rows);
  for (const NamedPair& pair : paired_metrics(a.metrics, b.metrics)) {
    CAPTURE(pair.path);
    CHECK(std::isnan(pair.a) == std::isnan(pair.b));
    if (std::isnan(pair.b)) continue;
    // Where no component is positive this metric divides rounding errors by 1e-8.
    const double rounding = pair.path == "errors.relative_l2_posclamp_mean" ? 1e-7 : 0.0;
    CHECK(std::fabs(pair.a - pair.b) <= 1e-9 * std::max(1e-3, std::fabs(pair.b)) + rounding);
  }
}

}  // namespace

void check_registry(const Kernels& kernels) {
  const std::vector<StreamSpec> specs = {
      {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 2, .rope_pairs = 2},
      {.tokens = 90, .d = 4, .dv = 3, .window = 33},
      {.tokens = 90, .d = 3, .dv = 3, .kind = StreamKind::kTies},
      // Sketches that miss the largest logit have to be summed under a shift of their own.
      {.tokens = 90, .d = 3, .dv = 3, .query_size = 200}};
  int cells = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        CAPTURE(describe(subject.row->id, point.given));
        const Params params = params_for(*subject.algorithm, point.given);
        if (reason_to_skip(*subject.algorithm, params, owned->stream.shape, 70)) continue;
        check_equal(replayed(owned->stream, 70, *subject.algorithm, params, kernels),
                    replayed(owned->stream, 70, *subject.algorithm, params, cpu_kernels()));
        ++cells;
      }
    }
  }
  CHECK(cells > 100);
}

}  // namespace kvbench::test
