#include "replay/memory_meter.hpp"

namespace kvbench {

void MemoryMeter::observe(const Sketch& sketch, Index row, const KeptCounts& written) {
  const Index visible = shape_.visible_end(row) - shape_.first_visible(row);
  KeptCounts kept = sketch.kept_counts();
  if (never_evicts_) {
    const Index read = kept.tokens;
    kept = sketch.held ? sketch.held->counts() : whole_tokens(visible);
    kept.tokens = read;
  }
  KeptCounts counted = kept;
  if (sketch.declared) counted -= sketch.declared->covered;
  const Index declared = sketch.declared ? sketch.declared->bytes : 0;
  const Index lookup =
      lookup_bytes(sketch.lookup.held_numbers, sketch.lookup.held_bits, element_bytes_);
  const Index bytes = declared + lookup + layout_.bytes(counted, written);
  report_.tokens_peak = std::max(report_.tokens_peak, kept.tokens);
  report_.peak_bytes = std::max(report_.peak_bytes, bytes);
  if (row != shape_.tokens - 1) return;

  report_.declared = sketch.declared.has_value();
  report_.tokens = kept.tokens;
  report_.distinct_tokens = distinct_tokens(sketch);
  report_.vectors = kept.keys + kept.values - (shape_.value_in_key ? kept.pairs : 0);
  report_.numbers = numbers_of(kept, shape_);
  report_.bookkeeping = kept.bookkeeping;
  report_.lookup_bytes = lookup;
  report_.shared_bytes =
      layout_.shared_bytes() +
      lookup_bytes(sketch.lookup.shared_numbers, sketch.lookup.shared_bits, element_bytes_);
  report_.bytes = bytes;
  report_.exact_bytes = exact_bytes(shape_, element_bytes_);
  report_.fraction = report_.peak_bytes / static_cast<double>(report_.exact_bytes);
}

}  // namespace kvbench
