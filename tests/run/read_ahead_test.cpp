#include "run/read_ahead.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/threads.hpp"
#include "system/parallel.hpp"

namespace kvbench::test {
namespace read_ahead_test {

std::unique_ptr<StreamData> numbered(std::size_t place) {
  auto data = std::make_unique<StreamData>();
  data->stream.id.kv_head = static_cast<int>(place);
  return data;
}

TEST_CASE("streams come in order, each read once, at most one ahead") {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const Threads set(threads);
    std::atomic<std::size_t> reads{0};
    ReadAhead streams(5, [&](std::size_t place) {
      ++reads;
      return numbered(place);
    });
    CHECK(reads == 0);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(streams.next()->stream.id.kv_head == static_cast<int>(i));
      CHECK(reads >= i + 1);
      CHECK(reads <= (threads == 1 ? i + 1 : std::min<std::size_t>(i + 2, 5)));
    }
    CHECK(reads == 5);
  }
}

TEST_CASE("with two threads the next stream is read while the caller works") {
  const Threads set(2);
  std::atomic<bool> second{false};
  ReadAhead streams(2, [&](std::size_t place) {
    if (place == 1) second = true;
    return numbered(place);
  });
  streams.next();
  for (int i = 0; i < 10000 && !second; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(second);
}

TEST_CASE("what a read throws comes when its stream is asked for, and the next can be had") {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const Threads set(threads);
    ReadAhead streams(4, [](std::size_t place) {
      if (place == 1 || place == 2) throw std::domain_error(std::to_string(place));
      return numbered(place);
    });
    CHECK(streams.next()->stream.id.kv_head == 0);
    CHECK_THROWS_WITH_AS(streams.next(), "1", std::domain_error);
    CHECK_THROWS_WITH_AS(streams.next(), "2", std::domain_error);
    CHECK(streams.next()->stream.id.kv_head == 3);
  }
}

TEST_CASE("the read under way ends before the streams do") {
  const Threads set(2);
  std::atomic<bool> ended{false};
  {
    ReadAhead streams(2, [&](std::size_t place) {
      if (place == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        ended = true;
      }
      return numbered(place);
    });
    streams.next();
  }
  CHECK(ended);
}

}  // namespace read_ahead_test
}  // namespace kvbench::test
