// Reports of two replays, to the bit: every member, with the name of the one that differs.
#pragma once

#include <doctest/doctest.h>

#include "replay/replay.hpp"

namespace kvbench::test {

inline void check_equal(const MemoryReport& a, const MemoryReport& b) {
  CHECK(a.tokens == b.tokens);
  CHECK(a.tokens_peak == b.tokens_peak);
  CHECK(a.distinct_tokens == b.distinct_tokens);
  CHECK(a.vectors == b.vectors);
  CHECK(a.numbers == b.numbers);
  CHECK(a.bookkeeping == b.bookkeeping);
  CHECK(a.bytes == b.bytes);
  CHECK(a.peak_bytes == b.peak_bytes);
  CHECK(a.exact_bytes == b.exact_bytes);
  CHECK(a.fraction == b.fraction);
  CHECK(a.declared == b.declared);
  CHECK(a.lookup_bytes == b.lookup_bytes);
  CHECK(a.shared_bytes == b.shared_bytes);
  static_assert(sizeof(MemoryReport) == 13 * 8, "compare a new member, too");
}

inline void check_equal(const TrafficReport& a, const TrafficReport& b) {
  CHECK(a.tokens_read_mean == b.tokens_read_mean);
  CHECK(a.tokens_read_max == b.tokens_read_max);
  CHECK(a.bytes_read_mean == b.bytes_read_mean);
  CHECK(a.bytes_read_max == b.bytes_read_max);
  CHECK(a.fraction == b.fraction);
  CHECK(a.density == b.density);
  static_assert(sizeof(TrafficReport) == 6 * 8, "compare a new member, too");
}

}  // namespace kvbench::test
