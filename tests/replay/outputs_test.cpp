// What replay hands out of a cell's answers.
#include <doctest/doctest.h>

#include <map>

#include "algorithms/registry.hpp"
#include "replay/replay.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace {

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

TEST_CASE("errors are answers less exact outputs, which all cells share") {
  const auto owned = make_stream({.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 3});
  AnswerWatch watch;
  const auto results = replayed(owned->stream, true, &watch);
  REQUIRE(results[0].outputs);
  const std::vector<double>& exact = *results[0].outputs->exact;
  CHECK(results[0].outputs->exact == results[1].outputs->exact);
  REQUIRE(exact.size() == 3 * 3 * 5);
  const std::vector<Index> rows = {22, 25, 39};
  for (Index r = 0; r < 3; ++r) {
    for (Index g = 0; g < 3; ++g) {
      const NaiveRow naive =
          naive_row(owned->stream, static_cast<int>(g), rows[static_cast<std::size_t>(r)]);
      for (Index k = 0; k < 5; ++k) {
        const auto i = static_cast<std::size_t>((r * 3 + g) * 5 + k);
        CHECK(exact[i] == doctest::Approx(static_cast<double>(naive.a[static_cast<std::size_t>(k)]))
                              .epsilon(1e-12));
        CHECK(results[0].outputs->errors[i] ==
              watch.answers.at({r, g})[static_cast<std::size_t>(k)] - exact[i]);
      }
    }
  }
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

}  // namespace
}  // namespace kvbench::test
