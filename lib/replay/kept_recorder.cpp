#include "replay/kept_recorder.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace kvbench {
namespace {

// The number of `vector`, which the sketch keeps at place `own`; a new one if it changed.
std::int32_t number_of(const std::vector<double>& vector, std::int32_t own,
                       std::vector<std::vector<double>>& all, std::vector<std::int32_t>& last) {
  const std::size_t at = own;
  if (last.size() <= at) last.resize(at + 1, -1);
  if (last[at] < 0 || all[last[at]] != vector) {
    last[at] = static_cast<std::int32_t>(all.size());
    all.push_back(vector);
  }
  return last[at];
}

bool has_features(const Sketch& sketch) {
  return std::any_of(sketch.rows().begin(), sketch.rows().end(),
                     [](const SketchRow& row) { return row.feature; });
}

}  // namespace

bool KeptRecorder::Row::comes_before(const Row& other) const {
  return std::tie(kind, w_num, w_den) < std::tie(other.kind, other.w_num, other.w_den);
}

KeptRecorder::KeptRecorder(const Stream& stream, const ReplaySetting& setting,
                           const ReplayCell& cell)
    : stream_(stream),
      prompt_(setting.prompt),
      element_bytes_(setting.element_bytes),
      never_evicts_(cell.algorithm->never_evicts(cell.params)) {}

void KeptRecorder::kept(Index row, bool scored, const Sketch& sketch) {
  expressible_ = expressible_ && !sketch.exact_numerator && !sketch.exact_denominator &&
                 !sketch.cache_positions && !sketch.answer_rule;
  if (!expressible_) return;
  further_numbers_.push_back(never_evicts_ ? 0 : sketch.bookkeeping);
  if (sketch.declared) bytes_ = sketch.declared->bytes;
  if (never_evicts_) {
    const Index lookup =
        lookup_bytes(sketch.lookup.held_numbers, sketch.lookup.held_bits, element_bytes_);
    const Index held = sketch.held ? bytes_of(sketch.held->counts(), stream_.shape, element_bytes_)
                                   : exact_bytes(stream_.shape, element_bytes_);
    bytes_ = std::max(bytes_.value_or(0), held + lookup);
  }
  const bool same =
      taken_ && sketch.changes().now() == *taken_ && sketch.numerator_scale == taken_scale_;
  if (same) {
    for (Row& open : open_) open.scored = open.scored || scored;
    return;
  }
  expressible_ = !has_features(sketch);
  if (!expressible_) return;
  follow(rows_of(sketch), row, scored);
  taken_ = sketch.changes().now();
  taken_scale_ = sketch.numerator_scale;
}

std::vector<KeptRecorder::Row> KeptRecorder::rows_of(const Sketch& sketch) {
  std::vector<Row> rows;
  rows.reserve(sketch.rows().size());
  for (const SketchRow& from : sketch.rows()) {
    if (from.is_empty()) continue;
    Row& row = rows.emplace_back();
    const auto own = [&](std::int32_t place, const Vectors& vectors, Vectors& all,
                         std::vector<std::int32_t>& last) {
      return place < 0 ? -1 : number_of(vectors[place], place, all, last);
    };
    row.kind = {.token = from.token,
                .key = own(from.own_key, sketch.own_keys, keys_, key_number_),
                .value = own(from.own_value, sketch.own_values, values_, value_number_),
                .copies = from.copies,
                .head = from.head,
                .weight_numbers = from.weight_numbers,
                .keeps_key = from.keeps_key,
                .keeps_value = from.keeps_value,
                .counts_as_token = from.counts_as_token};
    row.w_num = from.scaled ? from.w_num * sketch.numerator_scale : from.w_num;
    row.w_den = from.w_den;
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.comes_before(b); });
  return rows;
}

// Both are ordered by kind, then weights.
void KeptRecorder::follow(std::vector<Row> now, Index row, bool scored) {
  std::vector<Row> still_open;
  still_open.reserve(now.size());
  auto old = open_.begin();
  for (Row& current : now) {
    while (old != open_.end() && old->kind < current.kind) close(*old++, row);
    if (old != open_.end() && old->kind == current.kind) {
      match(*old++, current, row, scored, still_open);
    } else {
      current.begin = row;
      current.scored = scored;
      still_open.push_back(current);
    }
  }
  while (old != open_.end()) close(*old++, row);
  std::sort(still_open.begin(), still_open.end(),
            [](const Row& a, const Row& b) { return a.comes_before(b); });
  open_ = std::move(still_open);
}

// An open row and one that is there now, of one kind.
void KeptRecorder::match(Row& open, const Row& now, Index row, bool scored,
                         std::vector<Row>& still_open) {
  const bool same = open.w_num == now.w_num && open.w_den == now.w_den;
  if (!same && scored) {
    if (open.scored) {
      close(open, row);
      open.begin = row;
    }
    open.w_num = now.w_num;
    open.w_den = now.w_den;
  }
  open.scored = open.scored || scored;
  still_open.push_back(open);
}

void KeptRecorder::close(Row row, Index end) {
  row.end = end;
  closed_.push_back(row);
}

// Whether every decode token is kept exactly from its row on, by one row each; those go.
bool KeptRecorder::leave_out_appended(std::vector<Row>& rows) const {
  Row exact;
  const StreamShape& shape = stream_.shape;
  const auto is_appended = [&](const Row& row) {
    exact.kind.token = row.kind.token;
    // The first row that does not see the token: past the sliding window, or the chunk.
    const Index leaves = shape.chunk > 0 ? (row.kind.token / shape.chunk + 1) * shape.chunk
                                         : row.kind.token + shape.window;
    const Index end = shape.slides() && leaves < shape.tokens ? leaves : KeptRow::kToTheEnd;
    return row.kind == exact.kind && row.kind.token >= prompt_ && row.begin == row.kind.token &&
           row.w_num == 1.0 && row.w_den == 1.0 && row.end == end;
  };
  const auto decoded = std::count_if(rows.begin(), rows.end(),
                                     [&](const Row& row) { return row.kind.token >= prompt_; });
  if (decoded != shape.tokens - prompt_ ||
      std::count_if(rows.begin(), rows.end(), is_appended) != decoded) {
    return false;
  }
  std::erase_if(rows, is_appended);
  return true;
}

// A file has vectors of their own for all rows of a head or for none.
void KeptRecorder::append_vectors(const Row& row, KeptRows& out) const {
  const auto append = [&](const Vectors& all, std::int32_t number, ConstMatrix tokens,
                          std::vector<double>& to) {
    if (all.empty()) return;
    const double* from = number >= 0 ? all[number].data() : tokens.row(row.kind.token);
    to.insert(to.end(), from, from + tokens.cols);
  };
  append(keys_, row.kind.key, stream_.keys, out.keys);
  append(values_, row.kind.value, stream_.values, out.values);
}

std::optional<KeptRows> KeptRecorder::finish() {
  if (!expressible_) return std::nullopt;
  std::vector<Row> rows = std::move(closed_);
  rows.insert(rows.end(), open_.begin(), open_.end());
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.begin, a.kind, a.end) < std::tie(b.begin, b.kind, b.end);
  });
  KeptRows out;
  out.prompt = prompt_;
  out.bytes = bytes_;
  out.appends = !never_evicts_ && leave_out_appended(rows);
  for (const Row& row : rows) {
    const Kind& kind = row.kind;
    out.rows.push_back({.token = kind.token,
                        .w_num = row.w_num,
                        .w_den = row.w_den,
                        .begin = row.begin,
                        .end = row.end,
                        .head = kind.head,
                        .copies = kind.copies,
                        .keeps_key = kind.keeps_key,
                        .keeps_value = kind.keeps_value,
                        .counts_as_token = kind.counts_as_token,
                        .weight_numbers = kind.weight_numbers});
    append_vectors(row, out);
  }
  const bool stores_more = std::any_of(further_numbers_.begin(), further_numbers_.end(),
                                       [](Index count) { return count != 0; });
  if (stores_more) out.further_numbers = std::move(further_numbers_);
  return out;
}

}  // namespace kvbench
