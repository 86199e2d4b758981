// The order of events in a replay, and what happens when a cell fails or is stopped.
#include <doctest/doctest.h>

#include <any>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench::test {
namespace clock_test {

void hold_all(Index row, Sketch& sketch) {
  sketch.clear();
  sketch.add_exact(0, row + 1);
}

ReplaySetting decoding(const OwnedStream& owned) {
  ReplaySetting setting;
  setting.prompt = 6;
  setting.rows = decode_rows(owned.stream, 6);
  return setting;
}

TEST_CASE("tokens are fed before their row is prepared, answered rows after it, in order") {
  const auto owned = make_stream({.tokens = 7, .d = 2, .dv = 2});
  CallLog log;
  const AlgorithmDescription algorithm = scripted(hold_all, true, &log);
  replay_one(owned->stream, 4, algorithm, Params{}, 0, {5});
  const CallLog expected = {"extend 0 4", "finish_prompt", "extend 4 5", "prepare 4",
                            "answered 4", "extend 5 6",    "prepare 5",  "answered 5",
                            "extend 6 7", "prepare 6",     "answered 6"};
  CHECK(log == expected);
}

TEST_CASE("rows of the prompt are prepared like others, and no algorithm scores or evicts there") {
  const auto owned = make_stream({.tokens = 7, .d = 2, .dv = 2});
  CallLog log;
  const AlgorithmDescription algorithm = scripted(hold_all, true, &log);
  replay_one(owned->stream, 5, algorithm, Params{}, 0, {0, 3});
  const CallLog expected = {"extend 0 1", "prepare 0",     "extend 1 3", "extend 3 4", "prepare 3",
                            "extend 4 5", "finish_prompt", "extend 5 6", "prepare 5",  "answered 5",
                            "extend 6 7", "prepare 6",     "answered 6"};
  CHECK(log == expected);
}

TEST_CASE("a stream without a prompt still ends its prompt once, before the first token") {
  const auto owned = make_stream({.tokens = 3, .d = 2, .dv = 2});
  CallLog log;
  const AlgorithmDescription algorithm = scripted(hold_all, false, &log);
  replay_one(owned->stream, 0, algorithm, Params{}, 0, {2});
  REQUIRE(log.size() >= 2);
  CHECK(log.front() == "finish_prompt");
  CHECK(log[1].substr(0, 8) == "extend 0");
}

TEST_CASE("only the scored rows are scored, and values do not depend on which others are") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 4, .heads_per_kv = 2});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    if (row >= 0) sketch.add_exact(row / 2, row + 1);
  });
  const CellResult all = replay_one(owned->stream, 10, algorithm, Params{});
  const CellResult some = replay_one(owned->stream, 10, algorithm, Params{}, 0, {13, 29});
  REQUIRE(all.row_values);
  REQUIRE(some.row_values);
  CHECK(some.row_values->rows == std::vector<Index>{13, 29});
  for (std::size_t g = 0; g < 2; ++g) {
    CHECK((*some.row_values)["relative_l2"][g * 2] == (*all.row_values)["relative_l2"][g * 20 + 3]);
    CHECK((*some.row_values)["relative_l2"][g * 2 + 1] ==
          (*all.row_values)["relative_l2"][g * 20 + 19]);
  }
  CHECK(some.memory.tokens == all.memory.tokens);
  CHECK(some.memory.tokens_peak == all.memory.tokens_peak);
}

TEST_CASE("a failing cell is reported with its reason and the others go on") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  const AlgorithmDescription good = scripted(hold_all);
  const AlgorithmDescription bad = scripted([](Index row, Sketch&) {
    if (row == 8) throw CellError("nothing left at row 8");
  });
  ReplaySetting setting;
  setting.prompt = 6;
  setting.rows = decode_rows(owned->stream, 6);
  std::vector<int> reported(3, 0);
  std::vector<CellResult> results(3);
  replay(owned->stream, setting, {{&good, {}, 0}, {&bad, {}, 0}, {&good, {}, 1}}, cpu_kernels(),
         [&](std::size_t cell, CellResult&& result) {
           ++reported[cell];
           results[cell] = std::move(result);
         });
  CHECK(reported == std::vector<int>{1, 1, 1});
  CHECK(!results[0].failed);
  CHECK(results[1].failed);
  CHECK(results[1].reason.find("nothing left at row 8") != std::string::npos);
  CHECK(!results[2].failed);
  CHECK(*results[2].metrics["errors.relative_l2.max"] < 1e-14);
}

TEST_CASE("memory that runs out in a cell is its own failure") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  const AlgorithmDescription greedy = scripted([](Index row, Sketch&) {
    if (row == 8) throw std::bad_alloc();
  });
  std::vector<CellResult> results(1);
  replay(owned->stream, decoding(*owned), {{&greedy, {}, 0}}, cpu_kernels(),
         [&](std::size_t cell, CellResult&& result) { results[cell] = std::move(result); });
  CHECK(results[0].failed);
  CHECK(results[0].reason.find("not enough memory") != std::string::npos);
}

struct BuggyWork {
  using Result = int;
  Result compute(const SharedContext&) const { throw std::bad_any_cast(); }
  auto operator<=>(const BuggyWork&) const = default;
};

TEST_CASE("a bug in a cell ends the replay, with what was being done, and fails no cell") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  const auto reasons = [&](const AlgorithmDescription& algorithm) {
    Params params;
    params.set("budget", std::int64_t{8});
    std::vector<std::string> out;
    try {
      replay(owned->stream, decoding(*owned), {{&algorithm, params, 3}}, cpu_kernels(),
             [&](std::size_t, CellResult&& result) { out.push_back(result.reason); });
    } catch (const BugError& error) {
      CHECK(out.empty());
      out = reasons_of(error);
    }
    return out;
  };
  AlgorithmDescription buggy = scripted([](Index row, Sketch&) {
    if (row == 8) throw std::out_of_range("vector");
  });
  std::vector<std::string> messages = reasons(buggy);
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].find("computing " + buggy.id + " budget=8, seed 3, of sequence ") == 0);
  CHECK(messages[1].find("vector") != std::string::npos);

  AlgorithmDescription shared = scripted(hold_all);
  shared.shared_work = [](const Params&, const StreamShape&, Index, std::uint32_t) {
    return std::vector<SharedWork>{BuggyWork()};
  };
  messages = reasons(shared);
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].find("BuggyWork, of sequence ") != std::string::npos);
  CHECK(messages[1] == std::bad_any_cast().what());
}

TEST_CASE("a device that failed for good ends the replay as it is, and fails no cell") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  const AlgorithmDescription lost = scripted([](Index row, Sketch&) {
    if (row == 8) throw DeviceError("device 0 failed");
  });
  const auto run = [&] {
    replay(owned->stream, decoding(*owned), {{&lost, {}, 0}}, cpu_kernels(),
           [](std::size_t, CellResult&&) { FAIL("no cell is done"); });
  };
  CHECK_THROWS_WITH_AS(run(), "device 0 failed", DeviceError);
}

TEST_CASE("what is thrown where a cell is reported ends the replay as it is") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  const AlgorithmDescription good = scripted(hold_all);
  int reported = 0;
  const int threads = thread_count();
  set_thread_count(2);
  const auto run = [&] {
    replay(owned->stream, decoding(*owned), std::vector<ReplayCell>(8, {&good, {}, 0}),
           cpu_kernels(), [&](std::size_t, CellResult&&) {
             ++reported;
             throw std::underflow_error("disk full");
           });
  };
  CHECK_THROWS_WITH_AS(run(), "disk full", std::underflow_error);
  set_thread_count(threads);
  CHECK(reported < 8);
}

TEST_CASE("told to stop, a replay ends inside a cell, and nobody takes that for a failure") {
  const auto owned = make_stream({.tokens = 400, .d = 2, .dv = 2});
  std::atomic<bool> stop{false};
  Index last_row = 0;
  const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
    hold_all(row, sketch);
    last_row = row;
    if (row == 50) stop = true;
  });
  ReplaySetting setting;
  setting.prompt = 6;
  setting.rows = decode_rows(owned->stream, 6);
  int reported = 0;
  const auto done = [&](std::size_t, CellResult&&) { ++reported; };
  const auto run = [&] {
    replay(owned->stream, setting, {{&algorithm, {}, 0}}, cpu_kernels(), done);
  };
  {
    const Stoppable stoppable(stop);
    CHECK_THROWS_AS(run(), Stopped);
    CHECK(last_row == 50);
    CHECK(reported == 0);
  }
  // A flag that no replay was given stops nothing.
  run();
  CHECK(last_row == 399);
  CHECK(reported == 1);
}

struct WorkToStop {
  std::atomic<bool>* stop;

  using Result = int;
  Result compute(const SharedContext&) const {
    *stop = true;
    parallel_for(100, [](Index) { FAIL("went on"); });
    return 0;
  }
  auto operator<=>(const WorkToStop&) const = default;
};

TEST_CASE("told to stop, work that cells share ends, and no cell is reported as failed") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  std::atomic<bool> stop{false};
  AlgorithmDescription algorithm = scripted(hold_all);
  algorithm.shared_work = [&](const Params&, const StreamShape&, Index, std::uint32_t) {
    return std::vector<SharedWork>{WorkToStop{&stop}};
  };
  ReplaySetting setting;
  setting.prompt = 6;
  setting.rows = decode_rows(owned->stream, 6);
  int reported = 0;
  const Stoppable stoppable(stop);
  CHECK_THROWS_AS(replay(owned->stream, setting, {{&algorithm, {}, 0}}, cpu_kernels(),
                         [&](std::size_t, CellResult&&) { ++reported; }),
                  Stopped);
  CHECK(reported == 0);
}

}  // namespace clock_test
}  // namespace kvbench::test
