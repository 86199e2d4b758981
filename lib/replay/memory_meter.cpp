#include "replay/memory_meter.hpp"

namespace kvbench {

void MemoryMeter::observe(const Sketch& sketch, Index row) {
  const Index visible = row + 1 - shape_.first_visible(row);
  Holdings held = sketch.holdings();
  if (never_evicts_) {
    held.keys = held.values = visible;
    held.bookkeeping = 0;
  }
  const Index bytes = bytes_of(held, shape_, element_bytes_);
  report_.tokens_peak = std::max(report_.tokens_peak, held.tokens);
  report_.peak_bytes = std::max(report_.peak_bytes, bytes);
  if (row != shape_.tokens - 1) return;

  report_.tokens = held.tokens;
  report_.distinct_tokens = distinct_tokens(sketch);
  report_.vectors = held.keys + held.values;
  report_.numbers = held.keys * shape_.d + held.values * shape_.dv;
  report_.bookkeeping = held.bookkeeping;
  report_.bytes = bytes;
  report_.exact_bytes = exact_bytes(shape_, element_bytes_);
  report_.fraction =
      static_cast<double>(report_.peak_bytes) / static_cast<double>(report_.exact_bytes);
}

}  // namespace kvbench
