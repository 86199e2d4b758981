#include "sketch/sketch.hpp"

#include <algorithm>
#include <atomic>

namespace kvbench {

void ChangeLog::begin_anew() {
  static std::atomic<std::uint64_t> eras{0};
  era_ = ++eras;
  positions_.clear();
}

KeptCounts& KeptCounts::operator+=(const KeptCounts& other) {
  tokens += other.tokens;
  keys += other.keys;
  values += other.values;
  pairs += other.pairs;
  bookkeeping += other.bookkeeping;
  return *this;
}

KeptCounts& KeptCounts::operator-=(const KeptCounts& other) {
  tokens -= other.tokens;
  keys -= other.keys;
  values -= other.values;
  pairs -= other.pairs;
  bookkeeping -= other.bookkeeping;
  return *this;
}

KeptCounts counts_of(const SketchRow& row) {
  if (row.is_empty()) return {};
  const Index copies = row.copies;
  const bool pair = row.own_key < 0 && row.own_value < 0 && row.keeps_key && row.keeps_value;
  return {.tokens = row.counts_as_token ? copies : 0,
          .keys = row.keeps_key ? copies : 0,
          .values = row.keeps_value ? copies : 0,
          .pairs = pair ? copies : 0,
          .bookkeeping = copies * row.weight_numbers};
}

void Sketch::count(const SketchRow& row, Index sign) {
  if (row.is_empty()) return;
  rows_of_one_head_ += row.head >= 0 ? sign : 0;
  if (sign > 0) {
    kept_ += counts_of(row);
  } else {
    kept_ -= counts_of(row);
  }
}

KeptCounts Sketch::Held::counts() const {
  KeptCounts counts = whole_tokens(std::ssize(tokens));
  counts.bookkeeping = bookkeeping;
  return counts;
}

Sketch Sketch::renamed(const std::vector<std::int32_t>& tokens) const {
  Sketch out = *this;
  for (SketchRow& row : out.rows_) {
    if (row.token >= 0) row.token = tokens[row.token];
  }
  return out;
}

Index Sketch::add(const SketchRow& row) {
  rows_.push_back(row);
  count(row, 1);
  changes_.note(size() - 1, size());
  return size() - 1;
}

void Sketch::add_exact(Index first, Index last) {
  for (Index token = first; token < last; ++token) add(SketchRow::exact(token));
}

void Sketch::replace(Index position, const SketchRow& row) {
  SketchRow& old = rows_[position];
  count(old, -1);
  old = row;
  count(old, 1);
  changes_.note(position, size());
}

void Sketch::set_weights(Index position, double w_num, double w_den) {
  SketchRow& row = rows_[position];
  row.w_num = w_num;
  row.w_den = w_den;
  changes_.note(position, size());
}

void Sketch::erase(Index position) { erase(position, position + 1); }

void Sketch::erase(Index first, Index last) {
  if (first >= last) return;
  for (Index i = first; i < last; ++i) count((*this)[i], -1);
  rows_.erase(rows_.begin() + first, rows_.begin() + last);
  // To follow a row that goes takes about as long as to sum some of those that stay.
  constexpr Index kMaxFollowed = 64;
  if (last - first > kMaxFollowed) {
    changes_.begin_anew();
    return;
  }
  for (Index i = first; i < last; ++i) changes_.note(-1 - first, size());
}

void Sketch::clear() {
  rows_.clear();
  kept_ = KeptCounts{};
  rows_of_one_head_ = 0;
  changes_.begin_anew();
}

KeptCounts Sketch::kept_counts() const {
  KeptCounts kept = kept_;
  kept.bookkeeping += bookkeeping;
  if (answer_rule) {
    kept.bookkeeping += static_cast<Index>(answer_rule->low.size() + answer_rule->high.size());
  }
  return kept;
}

Index numbers_of(const KeptCounts& kept, const StreamShape& shape) {
  const Index apart = shape.value_in_key ? kept.values - kept.pairs : kept.values;
  return kept.keys * shape.d + apart * shape.dv;
}

Index bytes_of(const KeptCounts& kept, const StreamShape& shape, int element_bytes) {
  return numbers_of(kept, shape) * element_bytes + kept.bookkeeping * kBookkeepingBytes;
}

KeptCounts whole_tokens(Index tokens) {
  return {.tokens = tokens, .keys = tokens, .values = tokens, .pairs = tokens};
}

Index exact_bytes(const StreamShape& shape, int element_bytes) {
  return bytes_of(whole_tokens(shape.reach()), shape, element_bytes);
}

Index lookup_bytes(Index numbers, Index bits, int element_bytes) {
  return numbers * element_bytes + (bits + 7) / 8;
}

Index distinct_tokens(const Sketch& sketch) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(sketch.rows().size());
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) tokens.push_back(row.token);
  }
  std::sort(tokens.begin(), tokens.end());
  return std::unique(tokens.begin(), tokens.end()) - tokens.begin();
}

}  // namespace kvbench
