// The evidence that a cell holds, against a direct count and against softmaxes written out.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "algorithms/registry.hpp"
#include "replay/replay.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/random_sketch.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace evidence_test {

CellResult replayed(const Stream& stream, const ReplaySetting& setting, const ReplayCell& cell) {
  CellResult out;
  replay(stream, setting, {cell}, cpu_kernels(), [&](std::size_t, CellResult&& result) {
    REQUIRE_MESSAGE(!result.failed, result.reason);
    out = std::move(result);
  });
  return out;
}

ReplaySetting setting_of(const Stream& stream, Index prompt, const Evidence& evidence) {
  ReplaySetting setting;
  setting.prompt = prompt;
  setting.rows = decode_rows(stream, prompt);
  setting.evidence = std::make_shared<const Evidence>(evidence);
  return setting;
}

bool is_in(const Evidence& evidence, Index token) {
  for (const auto& [first, last] : evidence.spans) {
    if (first <= token && token <= last) return true;
  }
  return false;
}

// The numbers of a sketch of tokens with weights, by their definitions.
struct Naive {
  double held = 0.0;
  double exact = 0.0;
  double approximate = 0.0;
};

Naive naive_evidence(const Stream& stream, const Evidence& evidence,
                     const std::function<Sketch(Index)>& sketch_at) {
  Naive sums;
  for (const Index row : evidence.rows) {
    const Sketch sketch = sketch_at(row);
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      const NaiveRow exact = naive_row(stream, g, row);
      std::set<Index> held;
      Real all = exact.sink;
      Real part = 0;
      for (const SketchRow& each : sketch.rows()) {
        if (each.token < 0 || (each.head >= 0 && each.head != g)) continue;
        const Real x = exact.x[each.token - exact.lo];
        all += each.w_den * std::exp(x - exact.max);
        if (!is_in(evidence, each.token)) continue;
        part += each.w_den * std::exp(x - exact.max);
        if (each.keeps_value) held.insert(each.token);
      }
      for (Index j = exact.lo; j < exact.lo + std::ssize(exact.p); ++j) {
        if (is_in(evidence, j)) {
          sums.exact += static_cast<double>(exact.p[j - exact.lo]);
        }
      }
      sums.held += static_cast<double>(held.size()) / static_cast<double>(evidence.tokens());
      sums.approximate += static_cast<double>(part / all);
    }
  }
  const double count = static_cast<double>(evidence.rows.size()) * stream.shape.heads_per_kv;
  return {sums.held / count, sums.exact / count, sums.approximate / count};
}

TEST_CASE(
    "held tokens and masses equal their definitions, for weighted rows and rows of one head") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3},
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3, .window = 17},
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3, .sinks = true},
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3, .sinks = true, .alibi = true},
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3, .chunk = 19},
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3, .causal = false},
      {.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3, .sinks = true, .causal = false}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const StreamShape& shape = owned->stream.shape;
    const Evidence evidence{{{2, 4}, {20, 20}, {30, 33}}, {25, 31, 39}};
    for (const bool by_head : {false, true}) {
      CAPTURE(spec.window);
      CAPTURE(spec.sinks);
      CAPTURE(spec.chunk);
      CAPTURE(spec.causal);
      CAPTURE(by_head);
      // Some tokens, some twice, of unequal weights, some without their values.
      const auto sketch_at = [&](Index row) {
        Sketch sketch;
        for (Index j = shape.first_visible(row); j < shape.visible_end(row); ++j) {
          if (j % 3 == 1) continue;
          SketchRow kept = SketchRow::exact(j);
          kept.w_den = 0.5 + 0.1 * static_cast<double>(j % 7);
          kept.keeps_value = j % 5 != 0;
          if (!kept.keeps_value) kept.w_num = 0.0;
          if (by_head && j % 4 == 0) kept.head = static_cast<std::int16_t>(j % 3);
          sketch.add(kept);
          if (j % 8 == 2) sketch.add(kept);
        }
        return sketch;
      };
      const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
        if (row >= 0) sketch = sketch_at(row);
      });
      const Index prompt = spec.causal ? 20 : 40;
      const CellResult result = replayed(owned->stream, setting_of(owned->stream, prompt, evidence),
                                         {&algorithm, Params{}});
      REQUIRE(result.evidence);
      CHECK(result.evidence->tokens == 8);
      CHECK(result.evidence->rows == 3);
      const Naive naive = naive_evidence(owned->stream, evidence, sketch_at);
      CHECK(result.evidence->held_share == doctest::Approx(naive.held).epsilon(1e-14));
      CHECK(result.evidence->mass_exact == doctest::Approx(naive.exact).epsilon(1e-12));
      CHECK(result.evidence->mass_approximate.value() ==
            doctest::Approx(naive.approximate).epsilon(1e-12));
      // Another span of tokens would give another number.
      const Evidence other{{{2, 4}, {21, 21}, {30, 33}}, {25, 31, 39}};
      const Naive wrong = naive_evidence(owned->stream, other, sketch_at);
      CHECK(std::fabs(wrong.exact - naive.exact) > 1e-6);
    }
  }
}

TEST_CASE("a window holds of the evidence what it has not passed, exact attention all of it") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 4, .heads_per_kv = 2});
  const Evidence evidence{{{18, 23}}, {28}};  // row 28 sees 21 .. 28: 3 of 6
  const AlgorithmDescription* window = find_algorithm("window");
  Params params;
  params.set("budget", std::int64_t{8});
  const auto setting = setting_of(owned->stream, 10, evidence);
  const CellResult kept = replayed(owned->stream, setting, {window, params});
  CHECK(kept.evidence.value().held_share == 0.5);
  CHECK(kept.evidence->held == std::vector<Index>{3, 3});
  CHECK(kept.evidence->last == std::vector<Index>{21, 22, 23});
  CHECK(kept.evidence->mass_approximate.value() > 0.0);
  const CellResult exact = replayed(owned->stream, setting, {find_algorithm("exact"), Params{}});
  CHECK(exact.evidence.value().held_share == 1.0);
  CHECK(exact.evidence->mass_approximate.value() ==
        doctest::Approx(exact.evidence->mass_exact).epsilon(1e-13));
}

TEST_CASE("evidence that no scored row asks for is not looked for, and changes nothing else") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 4, .heads_per_kv = 2});
  const ReplayCell cell{find_algorithm("exact"), Params{}};
  const CellResult asked =
      replayed(owned->stream, setting_of(owned->stream, 10, {{{1, 2}}, {12}}), cell);
  const CellResult before =
      replayed(owned->stream, setting_of(owned->stream, 10, {{{1, 2}}, {5}}), cell);
  CHECK(!before.evidence);
  REQUIRE(asked.evidence);
  for (const MetricNumber& number : metric_numbers()) {
    CHECK(asked.metrics[number.path] == before.metrics[number.path]);
  }
}

}  // namespace evidence_test
}  // namespace kvbench::test
