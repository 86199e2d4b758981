#include "kernels/weight_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvbench {
namespace {

// Bits, so that NaN is itself.
bool same_bits(const WeightEntry& a, const WeightEntry& b) {
  static_assert(sizeof(WeightEntry) == 32);
  std::uint64_t x[4];
  std::uint64_t y[4];
  std::memcpy(x, &a, sizeof(x));
  std::memcpy(y, &b, sizeof(y));
  return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0;
}

// The first entry from `token` on, which is near.
const WeightEntry* first_from(const WeightEntry* entry, const WeightEntry* last,
                              std::int32_t token) {
  Index step = 1;
  for (; last - entry > step && entry[step].token < token; step *= 2) entry += step;
  return std::lower_bound(
      entry, entry + std::min<Index>(step + 1, last - entry), token,
      [](const WeightEntry& each, std::int32_t other) { return each.token < other; });
}

}  // namespace

void WeightTable::lay_out(const AnswerBatch& batch, Index first, Index last,
                          const std::vector<Index>& places) {
  find_lists(batch, first, last, places);
  compare_kinds();
  find_differing();
  const Index kept = laid_out_before();
  const std::size_t places_kept = kept;
  tokens_.resize(places_kept);
  own_of_.resize(places_kept);
  sums_value_.resize(places_kept);
  for (int kind = 0; kind < kWeightKinds; ++kind) {
    all_[kind].resize(places_kept);
    own_[kind].clear();
  }
  next_.clear();
  for (const List& list : lists_) next_.push_back(list.first);
  const WeightEntry* same = lists_.front().first + kept;
  const WeightEntry* const end = lists_.front().last;
  laid_out_ = lists_.front().first;
  laid_out_count_ = differing_.empty() ? end - laid_out_ : -1;
  for (const std::int32_t token : differing_) {
    const WeightEntry* const until = first_from(same, end, token);
    add_tokens(same, until);
    same = until;
    if (laid_out_count_ < 0) laid_out_count_ = same - laid_out_;
    if (same != end && same->token == token) ++same;
    add_own_token(token);
  }
  add_tokens(same, end);
}

// How many of the first list's entries the table has as the last call left it.
Index WeightTable::laid_out_before() const {
  const List& list = lists_.front();
  if (list.first != laid_out_) return 0;
  const WeightEntry* last = list.first + std::min<Index>(laid_out_count_, list.last - list.first);
  if (!differing_.empty()) {
    last = std::lower_bound(
        list.first, last, differing_.front(),
        [](const WeightEntry& entry, std::int32_t token) { return entry.token < token; });
  }
  return last - list.first;
}

void WeightTable::find_lists(const AnswerBatch& batch, Index first, Index last,
                             const std::vector<Index>& places) {
  std::size_t used = 0;
  for (Index q = first; q < last; ++q) {
    const AnswerBatch::Question& question = batch.questions[q];
    const WeightEntry* begin = batch.weights.data() + question.first_weight;
    const WeightEntry* end = begin + question.weights;
    std::size_t l = 0;
    while (l < used && (lists_[l].first != begin || lists_[l].last != end)) ++l;
    if (l == used) {
      if (used == lists_.size()) lists_.emplace_back();
      lists_[used++] = {begin, end, {}};
    }
    lists_[l].places.push_back(places[q - first]);
  }
  lists_.resize(used);
}

// Compares the kinds of the first list's weights, as far as the last call has not; find_differing()
// compares those entries of the others that are not in the list before them.
void WeightTable::compare_kinds() {
  const List& front = lists_.front();
  const bool begins_alike = compared_first_ == front.first && compared_last_ <= front.last;
  if (!begins_alike) {
    std::fill_n(is_numerator_, kWeightKinds, true);
    std::fill_n(is_zero_, kWeightKinds, true);
    is_zero_[kNumerator] = is_zero_[kDenominator] = false;
  }
  for (const WeightEntry* w = begins_alike ? compared_last_ : front.first; w != front.last; ++w) {
    compare_kinds_of(*w);
  }
  bool is_one_range = true;
  const WeightEntry* until = front.first;
  for (const List& list : lists_) {
    is_one_range = is_one_range && list.first == front.first && until <= list.last;
    until = list.last;
  }
  compared_first_ = is_one_range ? front.first : nullptr;
  compared_last_ = until;
}

void WeightTable::compare_kinds_of(const WeightEntry& entry) {
  is_numerator_[kDenominator] &= entry.den == entry.num;
  is_numerator_[kLogarithm] &= entry.log == entry.num;
  is_numerator_[kKept] &= entry.kept == entry.num;
  is_zero_[kLogarithm] &= entry.log == 0.0;
  is_zero_[kKept] &= entry.kept == 0;
}

// Tokens whose weights differ between the lists, ascending.
void WeightTable::find_differing() {
  differing_.clear();
  if (lists_.size() == 1) return;
  for (std::size_t l = 1; l < lists_.size(); ++l) note_differences(lists_[l - 1], lists_[l]);
  for (std::size_t w = 0; w < differing_bits_.size(); ++w) {
    for (std::uint64_t bits = differing_bits_[w]; bits != 0; bits &= bits - 1) {
      differing_.push_back(static_cast<std::int32_t>(64 * w) + std::countr_zero(bits));
    }
    differing_bits_[w] = 0;
  }
}

// Notes the tokens at which two lists differ that share most of their entries. Kinds are compared
// for the entries that b alone has.
void WeightTable::note_differences(const List& a, const List& b) {
  const auto note = [&](std::int32_t token) {
    const auto word = static_cast<std::size_t>(token) / 64;
    if (word >= differing_bits_.size()) differing_bits_.resize(word + 1, 0);
    differing_bits_[word] |= std::uint64_t{1} << (token % 64);
  };
  const WeightEntry* x = a.first;
  const WeightEntry* y = b.first;
  if (b.first >= a.first && b.first < a.last) {  // shared entries lie in one place
    for (; x != b.first; ++x) note(x->token);
    x = y = std::min(a.last, b.last);
  }
  while (x != a.last && y != b.last) {
    if (same_bits(*x, *y)) {
      ++x, ++y;
      continue;
    }
    const std::int32_t least = std::min(x->token, y->token);
    note(least);
    const bool is_of_b = y->token == least;
    if (x->token == least) ++x;
    if (is_of_b) compare_kinds_of(*y++);
  }
  for (; x != a.last; ++x) note(x->token);
  for (; y != b.last; ++y) {
    note(y->token);
    compare_kinds_of(*y);
  }
}

// Entries [first, last), which weigh the same for all questions.
void WeightTable::add_tokens(const WeightEntry* first, const WeightEntry* last) {
  const std::size_t at = tokens_.size();
  const std::size_t count = last - first;
  tokens_.resize(at + count);
  own_of_.resize(at + count, -1);
  sums_value_.resize(at + count);
  for (std::vector<double>& all : all_) all.resize(at + count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens_[at + i] = first[i].token;
    sums_value_[at + i] = first[i].num != 0.0 ? 1 : 0;
    all_[kNumerator][at + i] = first[i].num;
    all_[kDenominator][at + i] = first[i].den;
    all_[kLogarithm][at + i] = first[i].log;
    all_[kKept][at + i] = first[i].kept;
  }
}

void WeightTable::add_own_token(std::int32_t token) {
  const std::size_t at = own_[kNumerator].size();
  tokens_.push_back(token);
  own_of_.push_back(static_cast<std::int32_t>(at / kPlaces));
  for (int kind = 0; kind < kWeightKinds; ++kind) {
    all_[kind].push_back(0.0);
    if (has_own_sum(static_cast<WeightKind>(kind))) own_[kind].resize(at + kPlaces, 0.0);
  }
  char& sums_value = sums_value_.emplace_back(0);
  for (std::size_t l = 0; l < lists_.size(); ++l) {
    const WeightEntry*& entry = next_[l];
    entry = first_from(entry, lists_[l].last, token);
    if (entry == lists_[l].last || entry->token != token) continue;
    if (entry->num != 0.0) sums_value = 1;
    const double weights[kWeightKinds] = {entry->num, entry->den, entry->log,
                                          static_cast<double>(entry->kept)};
    for (int kind = 0; kind < kWeightKinds; ++kind) {
      if (!has_own_sum(static_cast<WeightKind>(kind))) continue;
      double* own = own_[kind].data() + at;
      for (const Index place : lists_[l].places) own[place] = weights[kind];
    }
  }
}

}  // namespace kvbench
