// Work that cells share: computed once per kind and members, together where a kind is batched.
#include "replay/shared_work.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <vector>

#include "kind_of_same_name.hpp"
#include "replay/replay.hpp"
#include "support/algorithm_named.hpp"
#include "support/owned_stream.hpp"
#include "support/scripted.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace shared_work_test {

std::atomic<int> computed{0};

struct Doubled {
  int number = 0;

  using Result = int;
  Result compute(const SharedContext&) const {
    ++computed;
    if (number < 0) throw CellError("is negative");
    return 2 * number;
  }
  auto operator<=>(const Doubled&) const = default;
};

// The same members and the same type of result, another kind.
struct Squared {
  int number = 0;

  using Result = int;
  Result compute(const SharedContext&) const { return number * number; }
  double bytes() const { return 64.0; }
  auto operator<=>(const Squared&) const = default;
};

struct Batched {
  int number = 0;

  using Result = int;
  Result compute(const SharedContext&) const { return number; }
  static std::vector<Result> compute_all(const SharedContext&, const std::vector<Batched>& pieces) {
    ++computed;
    std::vector<Result> out;
    for (const Batched& piece : pieces) {
      if (piece.number == 13) throw CellError("all of it failed");
      out.push_back(100 * static_cast<int>(pieces.size()) + piece.number);
    }
    return out;
  }
  static void check(const Result& result) {
    if (result % 100 == 7) throw CellError("seven is invalid");
  }
  auto operator<=>(const Batched&) const = default;
};

SharedResults shared_by(const std::vector<std::vector<SharedWork>>& works) {
  const auto owned = make_stream({.tokens = 6, .d = 2, .dv = 2});
  std::vector<AlgorithmDescription> algorithms;
  for (const auto& work : works) {
    algorithms.push_back(scripted([](Index, Sketch&) {}));
    algorithms.back().shared_work = [work](const Params&, const StreamShape&, Index,
                                           std::uint32_t) { return work; };
  }
  std::vector<ReplayCell> cells;
  for (const AlgorithmDescription& algorithm : algorithms) cells.push_back({&algorithm, {}, 0});
  computed = 0;
  return compute_shared({owned->stream, 3, cpu_kernels()}, cells);
}

TEST_CASE("equal work of several cells is computed once, and kinds are told apart") {
  const SharedResults results =
      shared_by({{Doubled{3}, Squared{3}}, {Doubled{3}}, {Doubled{5}, Squared{5}}});
  CHECK(computed == 2);
  CHECK(results.get(Doubled{3}) == 6);
  CHECK(results.get(Doubled{5}) == 10);
  CHECK(results.get(Squared{3}) == 9);
  CHECK(results.get(Squared{5}) == 25);
  CHECK(!results.has(WorkKey(Doubled{4})));
  CHECK(SharedWork(Squared{1}).bytes() == 64.0);
  CHECK(SharedWork(Doubled{1}).bytes() == 0.0);
}

TEST_CASE("types of one name in two files are two kinds of work") {
  const SharedResults results = shared_by({{Doubled{'a'}}, {work_of_same_name('a')}});
  CHECK(results.get(Doubled{'a'}) == 2 * 'a');
  CHECK(result_of_same_name(results, 'a') == "aa");
}

TEST_CASE("work that fails gives its reason to those who ask for it, and to no others") {
  const SharedResults results = shared_by({{Doubled{-1}}, {Doubled{1}}});
  CHECK(results.get(Doubled{1}) == 2);
  CHECK_THROWS_WITH_AS(results.get(Doubled{-1}), "is negative", CellError);
}

TEST_CASE("pieces of a batched kind are computed in one go, and may fail each or all") {
  const SharedResults good = shared_by({{Batched{1}, Doubled{1}}, {Batched{2}}, {Batched{7}}});
  CHECK(computed == 2);  // one batch, one piece
  CHECK(good.get(Batched{1}) == 301);
  CHECK(good.get(Batched{2}) == 302);
  CHECK_THROWS_WITH_AS(good.get(Batched{7}), "seven is invalid", CellError);
  CHECK(good.get(Doubled{1}) == 2);

  const SharedResults bad = shared_by({{Batched{1}, Doubled{1}}, {Batched{13}}});
  CHECK_THROWS_WITH_AS(bad.get(Batched{1}), "all of it failed", CellError);
  CHECK_THROWS_WITH_AS(bad.get(Batched{13}), "all of it failed", CellError);
  CHECK(bad.get(Doubled{1}) == 2);
}

// The rows that it was given; fails at row `limit`.
struct Seen {
  Index limit = 0;

  using Result = std::vector<Index>;
  Result compute(const SharedContext&) const { return {}; }
  void add_rows(const SharedContext&, const RowBlock& block, Result& rows) const {
    if (block.rows().back() >= limit) throw CellError("saw too much");
    rows.insert(rows.end(), block.rows().begin(), block.rows().end());
  }
  auto operator<=>(const Seen&) const = default;
};

TEST_CASE("what gathers rows gets every block once, and fails its own cells alone") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  std::vector<AlgorithmDescription> algorithms;
  for (const Index limit : {12, 8, 12}) {
    algorithms.push_back(scripted([](Index row, Sketch& sketch) {
      while (sketch.size() <= row) sketch.add(SketchRow::exact(sketch.size()));
    }));
    algorithms.back().shared_work = [limit](const Params&, const StreamShape&, Index,
                                            std::uint32_t) {
      return std::vector<SharedWork>{Seen{limit}};
    };
  }
  std::vector<ReplayCell> cells;
  for (const AlgorithmDescription& algorithm : algorithms) cells.push_back({&algorithm, {}, 0});
  const SharedContext context = {owned->stream, 2, cpu_kernels()};
  SharedResults results = compute_shared(context, cells);
  GatheredRows gathered(context, cells);
  BlockRoom room;
  const std::vector<std::vector<Index>> blocks = {{3, 5}, {6, 8}, {9, 11}};
  std::vector<GatheredRows::Failure> failed;
  for (const std::vector<Index>& rows : blocks) {
    for (auto& failure :
         gathered.add(RowBlock(owned->stream, cpu_kernels(), rows, room), results)) {
      failed.push_back(failure);
    }
  }
  CHECK(failed == std::vector<GatheredRows::Failure>{{1, "saw too much"}});
  CHECK(results.get(Seen{12}) == std::vector<Index>{3, 5, 6, 8, 9, 11});

  ReplaySetting setting;
  setting.prompt = 2;
  setting.rows = {3, 5, 6, 8, 9, 11};
  setting.logit_bytes = 2 * BlockRoom::kBytes * owned->stream.shape.heads_per_kv * 12;
  std::vector<std::string> reasons(3, "not reported");
  replay(owned->stream, setting, cells, cpu_kernels(), [&](std::size_t c, CellResult&& result) {
    CHECK(reasons[c] == "not reported");
    reasons[c] = result.reason;
  });
  CHECK(reasons == std::vector<std::string>{"", "saw too much", ""});
}

TEST_CASE("subgen's predictions do not depend on how rows come in blocks, nor on further rows") {
  const auto owned = make_stream(
      {.tokens = 150, .d = 4, .dv = 6, .heads_per_kv = 3, .kind = StreamKind::kClustered});
  const AlgorithmDescription& subgen = algorithm_named("subgen");
  std::vector<ReplayCell> cells;
  for (const std::int64_t recent : {0, 5}) {
    cells.push_back({&subgen,
                     params_for(subgen, {{"delta", Value{1.5}},
                                         {"t", Value{std::int64_t{2}}},
                                         {"s", Value{std::int64_t{8}}},
                                         {"sinks", Value{std::int64_t{3}}},
                                         {"recent", Value{recent}}}),
                     7});
  }
  const AlgorithmDescription every_row = scripted(
      [](Index row, Sketch& sketch) {
        while (sketch.size() <= row) sketch.add(SketchRow::exact(sketch.size()));
      },
      true);
  const auto derived = [&](Index rows_at_once, bool with_every_row) {
    ReplaySetting setting;
    setting.rows = {0, 1, 2, 40, 41, 77, 90, 91, 92, 93, 120, 149};
    setting.logit_bytes = rows_at_once * BlockRoom::kBytes * 3 * 150;
    std::vector<ReplayCell> some = cells;
    if (with_every_row) some.push_back({&every_row, {}, 0});
    std::vector<Derived> out(some.size());
    replay(owned->stream, setting, some, cpu_kernels(), [&](std::size_t c, CellResult&& result) {
      REQUIRE_MESSAGE(!result.failed, result.reason);
      out[c] = result.derived;
    });
    out.resize(cells.size());
    return out;
  };
  const std::vector<Derived> whole = derived(150, false);
  CHECK(derived_real(whole[0], "predicted_rmse_numerator") > 0.0);
  CHECK(derived_real(whole[0], "predicted_rmse_normalizer") > 0.0);
  CHECK(derived_real(whole[0], "predicted_rmse_normalizer") !=
        derived_real(whole[1], "predicted_rmse_normalizer"));
  for (const Index rows : {1, 5, 150}) {
    CAPTURE(rows);
    CHECK(derived(rows, false) == whole);
    CHECK(derived(rows, true) == whole);
  }
}

}  // namespace shared_work_test
}  // namespace kvbench::test
