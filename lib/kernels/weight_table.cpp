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

}  // namespace

void WeightTable::lay_out(const AnswerBatch& batch, Index first, Index last,
                          const std::vector<Index>& places) {
  find_lists(batch, first, last, places);
  compare_kinds();
  find_differing();
  tokens_.clear();
  own_of_.clear();
  sums_value_.clear();
  for (int kind = 0; kind < kWeightKinds; ++kind) {
    all_[kind].clear();
    own_[kind].clear();
  }
  next_.clear();
  for (const List& list : lists_) next_.push_back(list.first);
  const WeightEntry* same = lists_.front().first;
  const WeightEntry* const end = lists_.front().last;
  for (const std::int32_t token : differing_) {
    for (; same != end && same->token < token; ++same) add_token(*same);
    if (same != end && same->token == token) ++same;
    add_own_token(token);
  }
  for (; same != end; ++same) add_token(*same);
}

void WeightTable::find_lists(const AnswerBatch& batch, Index first, Index last,
                             const std::vector<Index>& places) {
  std::size_t used = 0;
  for (Index q = first; q < last; ++q) {
    const AnswerBatch::Question& question = batch.questions[static_cast<std::size_t>(q)];
    const WeightEntry* begin = batch.weights.data() + question.first_weight;
    const WeightEntry* end = begin + question.weights;
    std::size_t l = 0;
    while (l < used && (lists_[l].first != begin || lists_[l].last != end)) ++l;
    if (l == used) {
      if (used == lists_.size()) lists_.emplace_back();
      lists_[used++] = {begin, end, {}};
    }
    lists_[l].places.push_back(places[static_cast<std::size_t>(q - first)]);
  }
  lists_.resize(used);
}

void WeightTable::compare_kinds() {
  bool equal[kWeightKinds] = {true, true, true, true};
  bool zero[kWeightKinds] = {true, true, true, true};
  const WeightEntry* compared = nullptr;  // entries before it, of lists that begin alike
  for (const List& list : lists_) {
    const bool goes_on = compared >= list.first && compared <= list.last;
    for (const WeightEntry* w = goes_on ? compared : list.first; w != list.last; ++w) {
      equal[kDenominator] &= w->den == w->num;
      equal[kLogarithm] &= w->log == w->num;
      equal[kKept] &= w->kept == w->num;
      zero[kLogarithm] &= w->log == 0.0;
      zero[kKept] &= w->kept == 0;
    }
    compared = list.last;
  }
  zero[kNumerator] = zero[kDenominator] = false;
  std::copy_n(equal, kWeightKinds, is_numerator_);
  std::copy_n(zero, kWeightKinds, is_zero_);
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

// Of two lists that share most of their entries.
void WeightTable::note_differences(const List& a, const List& b) {
  const auto note = [&](std::int32_t token) {
    const auto word = static_cast<std::size_t>(token) / 64;
    if (word >= differing_bits_.size()) differing_bits_.resize(word + 1, 0);
    differing_bits_[word] |= std::uint64_t{1} << (token % 64);
  };
  const WeightEntry* x = a.first;
  const WeightEntry* y = b.first;
  if (x == y) x = y = std::min(a.last, b.last);  // one is the other's beginning
  while (x != a.last && y != b.last) {
    if (same_bits(*x, *y)) {
      ++x, ++y;
      continue;
    }
    const std::int32_t least = std::min(x->token, y->token);
    note(least);
    if (x->token == least) ++x;
    if (y->token == least) ++y;
  }
  for (; x != a.last; ++x) note(x->token);
  for (; y != b.last; ++y) note(y->token);
}

void WeightTable::add_token(const WeightEntry& entry) {
  tokens_.push_back(entry.token);
  own_of_.push_back(-1);
  sums_value_.push_back(entry.num != 0.0 ? 1 : 0);
  all_[kNumerator].push_back(entry.num);
  all_[kDenominator].push_back(entry.den);
  all_[kLogarithm].push_back(entry.log);
  all_[kKept].push_back(entry.kept);
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
    while (entry != lists_[l].last && entry->token < token) ++entry;
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
