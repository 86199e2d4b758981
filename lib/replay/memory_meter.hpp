// Counts what an algorithm holds while it is replayed.
#pragma once

#include <algorithm>

#include "core/stream.hpp"
#include "replay/cell_result.hpp"
#include "sketch/sketch.hpp"
#include "storage/storage.hpp"

namespace kvbench {

class MemoryMeter {
 public:
  // `layout`: what vectors take; must live as long. `never_evicts`: nothing is dropped while rows
  // are answered, so bytes are those of all that they see, or of Sketch::held.
  MemoryMeter(const StreamShape& shape, int element_bytes, const StorageLayout& layout,
              bool never_evicts)
      : shape_(shape),
        element_bytes_(element_bytes),
        layout_(layout),
        never_evicts_(never_evicts) {}

  // The sketch that answers row `row`; of its vectors, those that a codec wrote.
  void observe(const Sketch& sketch, Index row, const KeptCounts& written);

  // After the last row was observed.
  MemoryReport report() const { return report_; }

 private:
  StreamShape shape_;
  int element_bytes_;
  const StorageLayout& layout_;
  bool never_evicts_;
  MemoryReport report_;
};

}  // namespace kvbench
