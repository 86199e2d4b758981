// Counts what an algorithm holds while it is replayed.
#pragma once

#include <algorithm>

#include "core/stream.hpp"
#include "replay/replay.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

class MemoryMeter {
 public:
  // `keeps_everything`: nothing is dropped for good, so bytes are those of exact attention.
  MemoryMeter(const StreamShape& shape, int element_bytes, bool keeps_everything)
      : shape_(shape), element_bytes_(element_bytes), keeps_everything_(keeps_everything) {}

  // The sketch that answers row `row`.
  void observe(const Sketch& sketch, Index row);

  // After the last row was observed.
  MemoryReport report() const { return report_; }

 private:
  StreamShape shape_;
  int element_bytes_;
  bool keeps_everything_;
  MemoryReport report_;
};

}  // namespace kvbench
