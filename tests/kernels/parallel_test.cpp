// parallel_for: every index once, nested ranges, exceptions; no thread idles while work is left.
#include "system/parallel.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/threads.hpp"
#include "system/stop.hpp"

namespace kvbench::test {
namespace parallel_test {

// Counts itself in, and waits until all have come; false if they do not within a long time.
bool meet(std::atomic<int>& here, int all) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  ++here;
  while (here < all) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_CASE("every index of nested ranges is visited once") {
  for (const int threads : {1, 2, 5}) {
    const Threads set(threads);
    std::vector<std::atomic<int>> visits(7 * 11 * 3);
    parallel_for(7, [&](Index a) {
      parallel_for(
          11, [&](Index b) { parallel_for(3, [&](Index c) { ++visits[(a * 11 + b) * 3 + c]; }); });
    });
    for (const std::atomic<int>& count : visits) CHECK(count == 1);
    parallel_for(0, [](Index) { FAIL("there is none"); });
  }
}

TEST_CASE("a thread that waits for its range takes part in the ranges below it") {
  const Threads set(2);
  for (int round = 0; round < 20; ++round) {
    // One of two opens a range that needs both threads; the other has nothing else to do.
    std::atomic<int> begun = 0;
    std::atomic<int> here = 0;
    std::atomic<bool> met = true;
    parallel_for(2, [&](Index i) {
      meet(begun, 2);
      if (i == round % 2) return;
      parallel_for(1, [&](Index) {
        parallel_for(2, [&](Index) {
          if (!meet(here, 2)) met = false;
        });
      });
    });
    CHECK(met);
  }
}

TEST_CASE("the first exception is thrown again, and what has not begun by then is left out") {
  const Threads set(3);
  std::atomic<int> visits = 0;
  const auto nested = [&] {
    parallel_for(4, [&](Index) {
      parallel_for(5, [&](Index i) {
        ++visits;
        if (i == 2) throw std::runtime_error("two");
      });
    });
  };
  CHECK_THROWS_WITH_AS(nested(), "two", std::runtime_error);
  CHECK(visits < 20);
  visits = 0;
  parallel_for(4, [&](Index) { ++visits; });
  CHECK(visits == 4);
}

TEST_CASE("work that is under way when another index throws ends at its next question") {
  const Threads set(2);
  std::atomic<int> here = 0;
  std::atomic<bool> stopped = false;
  const auto run = [&] {
    parallel_for(2, [&](Index i) {
      meet(here, 2);
      if (i == 0) throw std::runtime_error("zero");
      try {
        parallel_for(1, [&](Index) {
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
          while (std::chrono::steady_clock::now() < end) throw_if_stopped();
        });
      } catch (const Stopped&) {
        stopped = true;
        throw;
      }
    });
  };
  CHECK_THROWS_WITH_AS(run(), "zero", std::runtime_error);
  CHECK(stopped);
  throw_if_stopped();  // nothing lasts
}

TEST_CASE("an exception that a body catches ends nothing but the range it came from") {
  const Threads set(2);
  std::atomic<int> visits = 0;
  parallel_for(10, [&](Index) {
    try {
      parallel_for(3, [&](Index) { throw std::runtime_error("below"); });
    } catch (const std::runtime_error&) {
      throw_if_stopped();
      ++visits;
    }
  });
  CHECK(visits == 10);
}

}  // namespace parallel_test
}  // namespace kvbench::test
