// Outputs of a cell's answers that replay hands out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "algorithms/registry.hpp"
#include "replay/replay.hpp"
#include "support/algorithm_named.hpp"
#include "support/given.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace outputs_test {

class AnswerWatch : public ReplayWatch {
 public:
  void kept(Index, bool, const Sketch&) override {}
  void answered(Index r, Index g, const Answer& answer) override {
    answers[{r, g}] = answer.answer;
  }
  std::map<std::pair<Index, Index>, std::vector<double>> answers;
};

std::vector<CellResult> replayed(const Stream& stream, bool keep, AnswerWatch* watch) {
  ReplaySetting setting;
  setting.prompt = 20;
  setting.rows = {22, 25, 39};
  setting.keep_outputs = keep;
  Params params;
  params.set("budget", std::int64_t{6});
  std::vector<ReplayCell> cells = {{find_algorithm("window"), params},
                                   {find_algorithm("exact"), Params{}}};
  cells[0].watch = watch;
  std::vector<CellResult> results(2);
  replay(stream, setting, cells, cpu_kernels(),
         [&](std::size_t c, CellResult&& result) { results[c] = std::move(result); });
  return results;
}

void check_outputs(const Stream& stream) {
  AnswerWatch watch;
  const auto results = replayed(stream, true, &watch);
  REQUIRE(results[0].outputs);
  const std::vector<double>& exact = *results[0].outputs->exact;
  CHECK(results[0].outputs->exact == results[1].outputs->exact);
  REQUIRE(exact.size() == 3 * 3 * 5);
  const std::vector<Index> rows = {22, 25, 39};
  for (Index r = 0; r < 3; ++r) {
    for (Index g = 0; g < 3; ++g) {
      const NaiveRow naive = naive_row(stream, static_cast<int>(g), rows[r]);
      for (Index k = 0; k < 5; ++k) {
        const auto i = static_cast<std::size_t>((r * 3 + g) * 5 + k);
        CHECK(exact[i] == doctest::Approx(static_cast<double>(naive.a[k])).epsilon(1e-12));
        CHECK(results[0].outputs->errors[i] == watch.answers.at({r, g})[k] - exact[i]);
      }
    }
  }
}

TEST_CASE("errors are answers less exact outputs, which all cells share") {
  StreamSpec spec{.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3};
  SUBCASE("plain") {}
  SUBCASE("sinks") { spec.sinks = true; }
  SUBCASE("a bias by distance") { spec.alibi = true; }
  SUBCASE("chunks") { spec.chunk = 12; }
  SUBCASE("values in keys") { spec.value_in_key = true; }
  check_outputs(make_stream(spec)->stream);
}

TEST_CASE("where every row sees every token, outputs are those of all tokens") {
  const auto owned = make_stream(
      {.tokens = 30, .d = 6, .dv = 5, .heads_per_kv = 2, .sinks = true, .causal = false});
  ReplaySetting setting;
  setting.prompt = 30;
  setting.rows = {0, 13, 29};
  setting.keep_outputs = true;
  const AlgorithmDescription& knorm = algorithm_named("knorm");
  AnswerWatch watch;
  ReplayCell cell{&knorm, params_for(knorm, {{"budget", count_of(12)}})};
  cell.watch = &watch;
  CellResult result;
  replay(owned->stream, setting, {cell}, cpu_kernels(),
         [&](std::size_t, CellResult&& done) { result = std::move(done); });
  REQUIRE_MESSAGE(!result.failed, result.reason);
  REQUIRE(result.outputs);
  double largest = 0.0;
  for (Index r = 0; r < 3; ++r) {
    for (Index g = 0; g < 2; ++g) {
      const NaiveRow naive = naive_row(owned->stream, static_cast<int>(g), setting.rows[r]);
      CHECK(naive.p.size() == 30);
      for (Index k = 0; k < 5; ++k) {
        const auto i = static_cast<std::size_t>((r * 2 + g) * 5 + k);
        const auto a = static_cast<double>(naive.a[k]);
        CHECK((*result.outputs->exact)[i] == doctest::Approx(a).epsilon(1e-12));
        CHECK(result.outputs->errors[i] ==
              watch.answers.at({r, g})[k] - (*result.outputs->exact)[i]);
        largest = std::max(largest, std::fabs(result.outputs->errors[i]));
      }
    }
  }
  CHECK(largest > 1e-3);
}

TEST_CASE("handing outputs out changes no number of a cell, and is done only when asked") {
  const auto owned = make_stream({.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3});
  const auto with = replayed(owned->stream, true, nullptr);
  const auto without = replayed(owned->stream, false, nullptr);
  for (std::size_t c = 0; c < 2; ++c) {
    CHECK(!without[c].outputs);
    for (const MetricNumber& number : metric_numbers()) {
      CHECK(with[c].metrics[number.path] == without[c].metrics[number.path]);
    }
  }
}

}  // namespace outputs_test
}  // namespace kvbench::test
