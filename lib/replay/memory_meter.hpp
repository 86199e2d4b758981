// Counts what an algorithm holds while it is replayed.
#pragma once

#include <algorithm>

#include "core/stream.hpp"
#include "replay/replay.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

class MemoryMeter {
 public:
  // `never_evicts`: nothing is dropped for good, so bytes are those of exact attention.
  MemoryMeter(const StreamShape& shape, int element_bytes, bool never_evicts)
      : shape_(shape), element_bytes_(element_bytes), never_evicts_(never_evicts) {}

  // The sketch that answers row `row`.
  void observe(const Sketch& sketch, Index row);

  // After the last row was observed.
  MemoryReport report() const { return report_; }

 private:
  StreamShape shape_;
  int element_bytes_;
  bool never_evicts_;
  MemoryReport report_;
};

}  // namespace kvbench
