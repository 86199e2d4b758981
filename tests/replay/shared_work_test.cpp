// Work that cells share: computed once per kind and members, together where a kind is batched.
#include "replay/shared_work.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "kind_of_same_name.hpp"
#include "support/owned_stream.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace {

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

}  // namespace
}  // namespace kvbench::test
