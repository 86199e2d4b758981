// 4. How tokens are fed and on how many threads changes no bit.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <variant>

#include "conformance/points.hpp"
#include "support/equal_reports.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"
#include "system/parallel.hpp"

namespace kvbench::test {
namespace blocks_and_threads_test {

const std::vector<StreamSpec>& specs() {
  static const std::vector<StreamSpec> all = {
      {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 2, .rope_pairs = 2},
      {.tokens = 90, .d = 4, .dv = 3, .window = 33},
      {.tokens = 90, .d = 3, .dv = 3, .kind = StreamKind::kTies},
      {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .sinks = true, .alibi = true},
      {.tokens = 90, .d = 4, .dv = 3, .chunk = 32}};
  return all;
}

TEST_CASE("feeding the prompt in blocks of 1, 7, 64 or whole gives the same sketches") {
  Cases cases;
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(repeating(spec, 70));
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        CAPTURE(describe(subject.row->id, point.given));
        const Params params = params_for(*subject.algorithm, point.given);
        if (!cases.runs(subject, point.given, params, owned->stream.shape, 70)) continue;
        const auto whole = sketches(owned->stream, 70, *subject.algorithm, params, 5, 0);
        for (const Index block : {1, 7, 64}) {
          CAPTURE(block);
          const auto other = sketches(owned->stream, 70, *subject.algorithm, params, 5, block);
          REQUIRE(other.size() == whole.size());
          for (std::size_t r = 0; r < whole.size(); ++r) CHECK(same_sketch(other[r], whole[r]));
        }
      }
    }
  }
  cases.check_all_ran();
}

TEST_CASE("decode tokens fed in blocks leave the same sketch where no row is scored between") {
  Cases cases;
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(repeating(spec, 40));
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        CAPTURE(describe(subject.row->id, point.given));
        const Params params = params_for(*subject.algorithm, point.given);
        if (subject.algorithm->needs(params).row_logits) continue;
        if (!cases.runs(subject, point.given, params, owned->stream.shape, 40)) continue;
        const auto single = sketches(owned->stream, 40, *subject.algorithm, params, 5);
        SharedResults shared = decided(*subject.algorithm, params, 5, owned->stream, 40);
        for (const SharedWork& work :
             subject.algorithm->shared_work(params, owned->stream.shape, 40, 5)) {
          shared.add(work, SharedContext{owned->stream, 40, cpu_kernels()});
        }
        for (const Index block : {7, 64}) {
          const auto algorithm =
              subject.algorithm->create(params, {owned->stream, 40, 5, cpu_kernels(), shared});
          algorithm->extend(0, 40);
          algorithm->finish_prompt();
          for (Index first = 40; first < 90; first += block) {
            algorithm->extend(first, std::min<Index>(90, first + block));
          }
          CHECK(same_sketch(algorithm->sketch(), single.back()));
        }
      }
    }
  }
  std::set<std::string> scores_every_row;  // at every point
  for (const Subject& subject : subjects()) {
    const auto scores = [&](const Point& point) {
      return subject.algorithm->needs(params_for(*subject.algorithm, point.given)).row_logits;
    };
    if (std::ranges::all_of(subject.row->points, scores)) scores_every_row.insert(subject.row->id);
  }
  cases.check_all_ran(scores_every_row);
}

TEST_CASE("1, 2 and 4 threads, alone or among other cells, give the same bits") {
  const int before = thread_count();
  Cases tried;
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(repeating(spec, 50));
    const Index prompt = 50;
    ReplaySetting setting;
    setting.prompt = prompt;
    setting.rows = decode_rows(owned->stream, prompt);
    std::vector<ReplayCell> cells;
    std::vector<std::unique_ptr<const SharedResults>> scopes;
    for (const Subject& subject : subjects()) {
      for (const Point& point : subject.row->points) {
        const Params params = params_for(*subject.algorithm, point.given);
        if (!tried.runs(subject, point.given, params, owned->stream.shape, prompt)) continue;
        cells.push_back({subject.algorithm, params, 9});
        if (subject.algorithm->replay_scope(params) == ReplayScope::kHead) continue;
        scopes.push_back(std::make_unique<const SharedResults>(
            decided(*subject.algorithm, params, 9, owned->stream, prompt)));
        cells.back().model_results = scopes.back().get();
      }
    }
    const auto run = [&](const std::vector<ReplayCell>& list, int threads) {
      set_thread_count(threads);
      std::map<std::size_t, CellResult> results;
      replay(owned->stream, setting, list, cpu_kernels(),
             [&](std::size_t cell, CellResult&& result) { results[cell] = std::move(result); });
      return results;
    };
    const auto alone = run(cells, 1);
    const auto check_equal = [](const CellResult& a, const CellResult& b) {
      REQUIRE(!a.failed);
      REQUIRE(!b.failed);
      for (const NamedPair& pair : paired_metrics(a.metrics, b.metrics)) {
        CAPTURE(pair.path);
        CHECK((pair.a == pair.b || (pair.a != pair.a && pair.b != pair.b)));
      }
      test::check_equal(a.memory, b.memory);
      test::check_equal(a.traffic, b.traffic);
      REQUIRE(a.derived.size() == b.derived.size());
      for (std::size_t i = 0; i < a.derived.size(); ++i) {
        const auto is_nan = [](const auto& pair) {
          const double* number = std::get_if<double>(&pair.second);
          return number != nullptr && std::isnan(*number);
        };
        CHECK((a.derived[i] == b.derived[i] || (is_nan(a.derived[i]) && is_nan(b.derived[i]))));
      }
    };
    for (const int threads : {2, 4}) {
      const auto many = run(cells, threads);
      REQUIRE(many.size() == alone.size());
      for (const auto& [cell, result] : many) {
        CAPTURE(cells[cell].algorithm->id);
        check_equal(result, alone.at(cell));
      }
    }
    for (std::size_t cell = 0; cell < cells.size(); ++cell) {
      CAPTURE(cells[cell].algorithm->id);
      check_equal(run({cells[cell]}, 2).at(0), alone.at(cell));
    }
  }
  set_thread_count(before);
  tried.check_all_ran();
}

}  // namespace blocks_and_threads_test
}  // namespace kvbench::test
