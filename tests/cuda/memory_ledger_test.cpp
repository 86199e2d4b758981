// Device memory is reserved before a call begins; what does not fit waits, shrinks, or says why
// not.
#include "cuda/memory_ledger.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace kvbench::test {

using cuda::MemoryLedger;
using cuda::MemoryNeed;

TEST_CASE("all rows are granted where they fit, as many as fit where not") {
  MemoryLedger ledger(1000);
  CHECK(ledger.reserve({"a", 100, 9, 100}).rows() == 100);
  CHECK(ledger.reserved() == 0);
  const auto whole = ledger.reserve({"a", 100, 10, 200});
  CHECK(whole.rows() == 90);
  CHECK(ledger.reserved() == 1000);
}

TEST_CASE("a second call gets what the first one left") {
  MemoryLedger ledger(1000);
  const auto first = ledger.reserve({"a", 500, 1, 100});
  const auto second = ledger.reserve({"b", 100, 7, 100});
  CHECK(second.rows() == 42);
  CHECK(ledger.reserved() == 600 + 100 + 42 * 7);
}

TEST_CASE("a call without rows reserves its fixed bytes") {
  MemoryLedger ledger(1000);
  const auto room = ledger.reserve({"a", 1000, 0, 1});
  CHECK(room.rows() == 1);
  CHECK(ledger.reserved() == 1000);
}

TEST_CASE("one row that can never fit is refused with its size and a remedy") {
  MemoryLedger ledger(Index{10} << 20);
  try {
    const auto room = ledger.reserve({"exact attention", Index{9} << 20, Index{2} << 20, 5});
    FAIL("granted");
  } catch (const CellError& error) {
    const std::string said = error.what();
    CHECK(said.find("exact attention needs 11 MiB") != std::string::npos);
    CHECK(said.find("10 MiB") != std::string::npos);
    CHECK(said.find("--device cpu") != std::string::npos);
  }
  CHECK(ledger.reserved() == 0);
}

TEST_CASE("what is held has room of its own and never waits") {
  MemoryLedger ledger(1000, 100);
  const auto call = ledger.reserve({"a", 1000, 0, 1});
  auto first = ledger.reserve_resident(60);
  REQUIRE(first.has_value());
  CHECK_FALSE(ledger.reserve_resident(41).has_value());
  CHECK(ledger.reserve_resident(40).has_value());
  CHECK(ledger.resident_bytes() == 60);
  CHECK(ledger.reserved() == 1000);
  first.reset();
  CHECK(ledger.resident_bytes() == 0);
  CHECK(ledger.reserve_resident(100).has_value());
  CHECK_FALSE(MemoryLedger(1000).reserve_resident(1).has_value());
}

TEST_CASE("calls of many threads wait for each other and never hold more than there is") {
  MemoryLedger ledger(1000);
  std::atomic<Index> most = 0;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto room = ledger.reserve({"a", 300 + t, 50, 1 + i % 9});
        Index seen = most;
        const Index now = ledger.reserved();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done == 4000);
  CHECK(most <= 1000);
  CHECK(most > 300);
  CHECK(ledger.reserved() == 0);
}

}  // namespace kvbench::test
