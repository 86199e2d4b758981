#include "replay/traffic_meter.hpp"

#include <algorithm>
#include <vector>

namespace kvbench {

// Keys and values that several rows or query heads share are read once.
TrafficMeter::Read TrafficMeter::read_of_all(const Sketch& sketch, const CacheView& cache) {
  constexpr std::uint8_t kKey = 1;
  constexpr std::uint8_t kValue = 2;
  is_read_.assign(shape_.tokens, 0);
  std::vector<bool> own_key_read(sketch.own_keys.size(), false);
  std::vector<bool> own_value_read(sketch.own_values.size(), false);
  KeptCounts read;
  for (const SketchRow& row : sketch.rows()) {
    if (row.is_empty()) continue;
    if (row.own_key >= 0) own_key_read[row.own_key] = true;
    if (row.own_value >= 0) own_value_read[row.own_value] = true;
    if (row.token < 0) continue;
    std::uint8_t& token = is_read_[row.token];
    const bool is_new = token == 0;
    if (row.own_key < 0 && row.keeps_key) token |= kKey;
    if (row.own_value < 0 && row.keeps_value) token |= kValue;
    if (is_new && token != 0) ++read.tokens;
  }
  KeptCounts written;
  for (Index j = 0; j < shape_.tokens; ++j) {
    const std::uint8_t token = is_read_[j];
    if (token == 0) continue;
    const bool key = (token & kKey) != 0;
    const bool value = (token & kValue) != 0;
    read.keys += key ? 1 : 0;
    read.values += value ? 1 : 0;
    read.pairs += key && value ? 1 : 0;
    written.keys += key && cache.key_is_written(j) ? 1 : 0;
    written.values += value && cache.value_is_written(j) ? 1 : 0;
  }
  read.keys += std::count(own_key_read.begin(), own_key_read.end(), true);
  read.values += std::count(own_value_read.begin(), own_value_read.end(), true);
  return {read.tokens, layout_.bytes(read, written)};
}

TrafficMeter::Read TrafficMeter::read_by(const Sketch& sketch, Index visible,
                                         const CacheView& cache) {
  Read read;
  if (sketch.exact_numerator || sketch.exact_denominator) {
    read = {visible, bytes_of(whole_tokens(visible), shape_, element_bytes_)};
  } else if (keeps_all_) {
    read = read_of_all(sketch, cache);
  } else {
    KeptCounts kept = sketch.kept_counts();
    read.tokens = kept.tokens;
    if (sketch.declared) kept -= sketch.declared->covered;
    read.bytes = layout_.bytes(kept, cache.written());
    if (sketch.declared) read.bytes += sketch.declared->bytes;
  }
  const Index held = sketch.held ? std::ssize(sketch.held->tokens) : visible;
  const Index keys = keeps_all_ ? held : sketch.kept_counts().keys;
  read.bytes +=
      lookup_bytes(sketch.lookup.read_numbers, sketch.lookup.read_bits, element_bytes_) +
      layout_.key_numbers_bytes(sketch.lookup.read_key_numbers, keys, cache.written().keys);
  return read;
}

void TrafficMeter::observe(const Sketch& sketch, Index row, const std::vector<Index>& values_summed,
                           const CacheView& cache) {
  const Index visible = shape_.visible_end(row) - shape_.first_visible(row);
  const Read read = read_by(sketch, visible, cache);
  const Index exact = bytes_of(whole_tokens(visible), shape_, element_bytes_);
  ++rows_;
  tokens_ += read.tokens;
  bytes_ += read.bytes;
  fraction_ += read.bytes / static_cast<double>(exact);
  most_.tokens_read_max = std::max(most_.tokens_read_max, read.tokens);
  most_.bytes_read_max = std::max(most_.bytes_read_max, read.bytes);
  double summed = 0.0;
  for (const Index each : values_summed) {
    summed += sketch.exact_numerator ? visible : each;
  }
  density_ += summed / values_summed.size() / visible;
}

TrafficReport TrafficMeter::report() const {
  TrafficReport report = most_;
  if (rows_ == 0) return report;
  const double rows = rows_;
  report.tokens_read_mean = tokens_ / rows;
  report.bytes_read_mean = bytes_ / rows;
  report.fraction = fraction_ / rows;
  report.density = density_ / rows;
  return report;
}

}  // namespace kvbench
