#include "algorithms/mechanisms/kept_rows_replay.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvbench {
namespace {

// Indices of the rows by `time`, ascending; equal ones in the order of the rows.
template <class Time>
std::vector<std::int32_t> ordered(const std::vector<KeptRow>& rows, const Time& time) {
  std::vector<std::int32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return time(rows[a]) < time(rows[b]); });
  return order;
}

std::vector<std::vector<double>> vectors(const std::vector<double>& all, Index length) {
  std::vector<std::vector<double>> out;
  for (auto at = all.begin(); at != all.end(); at += length) out.emplace_back(at, at + length);
  return out;
}

}  // namespace

KeptRowsReplay::KeptRowsReplay(KeptRows rows, const Stream& stream, Index prompt)
    : stream_(stream),
      prompt_(prompt),
      kept_(std::move(rows)),
      by_arrival_(ordered(kept_.rows, [this](const KeptRow& row) { return arrival(row); })),
      by_end_(ordered(kept_.rows, [](const KeptRow& row) { return row.end; })),
      by_token_(ordered(kept_.rows, [](const KeptRow& row) { return row.token; })),
      position_of_(kept_.rows.size(), -1),
      first_appended_(prompt_) {
  sketch_.own_keys = vectors(kept_.keys, stream.shape.d);
  sketch_.own_values = vectors(kept_.values, stream.shape.dv);
  if (kept_.bytes) sketch_.declared = {*kept_.bytes, {}};
}

Index KeptRowsReplay::arrival(const KeptRow& row) const {
  return kept_.reads_future ? std::max<Index>(row.begin, row.token) : row.begin;
}

void KeptRowsReplay::finish_prompt() { follow(prompt_); }

void KeptRowsReplay::extend(Index first, Index last) {
  for (Index i = std::max(first, prompt_); i < last; ++i) {
    follow(i);
    if (kept_.appends) appended_.push_back(place(SketchRow::exact(i)));
    if (!kept_.further_numbers.empty()) {
      sketch_.bookkeeping = kept_.further_numbers[i - prompt_];
    }
  }
}

// Removes and adds rows up to decode row `now`.
void KeptRowsReplay::follow(Index now) {
  leave_window(now);
  for (; ended_ < by_end_.size(); ++ended_) {
    const std::int32_t r = by_end_[ended_];
    if (kept_.rows[r].end > now) break;
    remove(r);
  }
  for (; arrived_ < by_arrival_.size(); ++arrived_) {
    const std::int32_t r = by_arrival_[arrived_];
    if (arrival(kept_.rows[r]) > now) break;
    add(r, now);
  }
}

// Removes the tokens before the first one that decode row `row` sees.
void KeptRowsReplay::leave_window(Index row) {
  const Index first = stream_.shape.first_visible(row);
  for (; left_ < by_token_.size(); ++left_) {
    const std::int32_t r = by_token_[left_];
    if (kept_.rows[r].token >= first) break;
    if (kept_.rows[r].token >= 0) remove(r);
  }
  for (; kept_.appends && first_appended_ < std::min(first, row); ++first_appended_) {
    clear_place(appended_[first_appended_ - prompt_]);
  }
}

// Whether row number `r` repeats its token's key and value, which are one vector then.
bool KeptRowsReplay::has_vectors_of_token(std::int32_t r) const {
  const Index token = kept_.rows[r].token;
  if (!stream_.shape.value_in_key || token < 0) return false;
  const auto repeats = [&](const std::vector<std::vector<double>>& own, const ConstMatrix& all) {
    return own.empty() || std::equal(own[r].begin(), own[r].end(), all.row(token));
  };
  return repeats(sketch_.own_keys, stream_.keys) && repeats(sketch_.own_values, stream_.values);
}

// Adds row number `r` of the kept rows at decode row `now`.
void KeptRowsReplay::add(std::int32_t r, Index now) {
  const std::size_t at = r;
  const KeptRow& kept = kept_.rows[at];
  const bool out_of_window = kept.token >= 0 && kept.token < stream_.shape.first_visible(now);
  if (kept.end <= now || out_of_window) return;
  SketchRow row;
  row.token = kept.token;
  row.w_num = kept.w_num;
  row.w_den = kept.w_den;
  if (!has_vectors_of_token(r)) {
    row.own_key = kept_.keys.empty() ? -1 : r;
    row.own_value = kept_.values.empty() ? -1 : r;
  }
  row.copies = kept.copies;
  row.head = kept.head;
  row.keeps_key = kept.keeps_key;
  row.keeps_value = kept.keeps_value;
  row.counts_as_token = kept.counts_as_token;
  row.weight_numbers = kept.weight_numbers;
  position_of_[at] = place(row);
  if (sketch_.declared) sketch_.declared->covered += counts_of(row);
}

void KeptRowsReplay::remove(std::int32_t r) {
  Index& position = position_of_[r];
  if (position < 0) return;
  if (sketch_.declared) sketch_.declared->covered -= counts_of(sketch_[position]);
  clear_place(position);
  position = -1;
}

// Positions stay what they are: whoever follows the sketch sees only what changed.
Index KeptRowsReplay::place(const SketchRow& row) {
  if (free_.empty()) return sketch_.add(row);
  const Index position = free_.back();
  free_.pop_back();
  sketch_.replace(position, row);
  return position;
}

void KeptRowsReplay::clear_place(Index position) {
  sketch_.replace(position, SketchRow{});
  free_.push_back(position);
}

}  // namespace kvbench
