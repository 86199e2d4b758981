// Token weights of some questions, laid out for questions that are answered together: most tokens
// weigh the same for all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/resident_rows.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// The weights of the four sums of TokenSums.
enum WeightKind { kNumerator, kDenominator, kLogarithm, kKept, kWeightKinds };

class WeightTable {
 public:
  // `places`: [last - first] of questions [first, last) of the batch, each below kPlaces. Every
  // call is of one batch, which must not change between them: what lists begin with as those of the
  // last call did is there already.
  static constexpr Index kPlaces = 24;
  void lay_out(const AnswerBatch& batch, Index first, Index last, const std::vector<Index>& places);

  // Tokens that weigh anything in some question, ascending.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  // Whether the token's weights differ between the questions: then own() has them, else all() has.
  bool differs(Index i) const { return own_of_[i] >= 0; }
  // Whether it has a weight in the numerator.
  bool sums_value(Index i) const { return sums_value_[i] != 0; }
  double all(WeightKind kind, Index i) const { return all_[kind][i]; }
  // [kPlaces], of a kind with a sum of its own.
  const double* own(WeightKind kind, Index i) const {
    return own_[kind].data() + own_of_[i] * kPlaces;
  }
  // A kind whose weights are everywhere those of the numerator has its sum, to the bit.
  bool is_numerator(WeightKind kind) const { return is_numerator_[kind]; }
  // The other kinds, but those that are 0 everywhere, and the numerator.
  bool has_own_sum(WeightKind kind) const {
    return kind == kNumerator || (!is_numerator_[kind] && !is_zero_[kind]);
  }

 private:
  // A part of the batch's weights that questions are answered by.
  struct List {
    const WeightEntry* first = nullptr;
    const WeightEntry* last = nullptr;
    std::vector<Index> places;
  };

  void find_lists(const AnswerBatch& batch, Index first, Index last,
                  const std::vector<Index>& places);
  void compare_kinds();
  void compare_kinds_of(const WeightEntry& entry);
  Index laid_out_before() const;
  void find_differing();
  void note_differences(const List& a, const List& b);
  void add_tokens(const WeightEntry* first, const WeightEntry* last);
  void add_own_token(std::int32_t token);

  std::vector<List> lists_;
  // Entries from here on are those of the table, so many.
  const WeightEntry* laid_out_ = nullptr;
  Index laid_out_count_ = 0;
  // Entries whose kinds have been compared, if the lists' were one range.
  const WeightEntry* compared_first_ = nullptr;
  const WeightEntry* compared_last_ = nullptr;
  std::vector<std::uint64_t> differing_bits_;  // by token; scratch
  std::vector<std::int32_t> differing_;
  std::vector<std::int32_t> tokens_;
  std::vector<double> all_[kWeightKinds];
  std::vector<char> sums_value_;
  std::vector<std::int32_t> own_of_;  // by place in tokens_: a row of own_, or -1
  std::vector<double> own_[kWeightKinds];
  std::vector<const WeightEntry*> next_;  // next entry of each list
  bool is_numerator_[kWeightKinds] = {};
  bool is_zero_[kWeightKinds] = {};  // not of the numerator and the denominator
};

}  // namespace kvbench
