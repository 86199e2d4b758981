#include "replay/memory_meter.hpp"

namespace kvbench {

constexpr Index kBookkeepingBytes = 4;

void MemoryMeter::observe(const Sketch& sketch, Index row) {
  const Index visible = row + 1 - shape_.first_visible(row);
  const Holdings held = sketch.holdings();
  const Index keys = never_evicts_ ? visible : held.keys;
  const Index values = never_evicts_ ? visible : held.values;
  const Index bookkeeping = never_evicts_ ? 0 : held.bookkeeping;
  const Index numbers = keys * shape_.d + values * shape_.dv;
  const Index bytes = numbers * element_bytes_ + bookkeeping * kBookkeepingBytes;
  report_.tokens_peak = std::max(report_.tokens_peak, held.tokens);
  report_.peak_bytes = std::max(report_.peak_bytes, bytes);
  if (row != shape_.tokens - 1) return;

  report_.tokens = held.tokens;
  report_.distinct_tokens = distinct_tokens(sketch);
  report_.vectors = keys + values;
  report_.numbers = numbers;
  report_.bookkeeping = bookkeeping;
  report_.bytes = bytes;
  const Index most = shape_.window > 0 ? std::min(shape_.tokens, shape_.window) : shape_.tokens;
  report_.exact_bytes = most * (shape_.d + shape_.dv) * element_bytes_;
  report_.fraction =
      static_cast<double>(report_.peak_bytes) / static_cast<double>(report_.exact_bytes);
}

}  // namespace kvbench
