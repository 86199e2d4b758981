// A sketch's rows summed by token: what each token weighs in both sums, and the rows that are not
// plain tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/resident_rows.hpp"
#include "numerics/lanes.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// Dense by token, in groups of Lanes::kCount tokens, so that a sum over tokens is a sum over groups
// in ascending order: its bits depend on the weights alone, not on how or in what order they came.
class WeightsByToken {
 public:
  // `head`: the query head that asks, for sketches whose heads read different rows.
  explicit WeightsByToken(Index tokens, int head = 0);

  // Takes up a sketch. Where only some rows changed since this sketch was taken up before, only
  // their tokens are summed again.
  void take(const Sketch& sketch);
  // Another number whenever any weight below may have changed, factor() apart; 0 before the first
  // sketch.
  std::uint64_t version() const { return version_; }

  // A row with a key or a value of its own.
  struct OwnRow {
    std::int32_t token;
    std::int32_t key;    // -1: its token's; its w_den is among those by token
    std::int32_t value;  // -1: its token's
    double w_num;
    double w_den;  // 0 without a key of its own
    bool feature = false;
  };

  // Groups with a row, ascending.
  const std::vector<std::int32_t>& groups() const { return groups_.list(); }
  // Weights by token, padded with zeros to whole groups; zero outside of the groups.
  const double* den() const { return den_.data(); }    // sum of w_den
  const double* num() const { return num_.data(); }    // sum of w_num, less factor()
  const double* log() const { return log_.data(); }    // w_den ln(w_den); -inf below 0
  const double* kept() const { return kept_.data(); }  // 1 if the value is kept
  const std::vector<OwnRow>& own_rows() const { return own_rows_; }
  // Every sum over num() is to be multiplied by this: the sketch's scale where all numerator
  // weights have it, so that one that changes at every row changes no weight; else 1.
  double factor() const { return factor_; }
  // Tokens with a numerator weight, ascending.
  const std::vector<std::int32_t>& weighted() const { return weighted_; }
  // All tokens that weigh anything or whose value is kept, ascending; without own rows.
  void list(std::vector<WeightEntry>& out) const;
  // Whether the last version changed no more than some tokens and the scale within num(), so that
  // update() can make its list from the one before.
  bool can_update() const { return followed_; }
  // Entries that a list shares with the one before: [dropped, dropped + same) of that, which it
  // begins with.
  struct Common {
    Index dropped = 0;
    Index same = 0;
  };
  Common update(std::vector<WeightEntry>& list) const;

 private:
  // A set of groups, listed in ascending order once it is settled.
  class Groups {
   public:
    explicit Groups(Index count) : bits_(static_cast<std::size_t>((count + 63) / 64), 0) {}
    void add(std::size_t group) {
      std::uint64_t& word = bits_[group / 64];
      const std::uint64_t bit = std::uint64_t{1} << (group % 64);
      more_ = more_ || (word & bit) == 0;
      word |= bit;
    }
    void settle();
    void clear();
    const std::vector<std::int32_t>& list() const { return list_; }

   private:
    std::vector<std::uint64_t> bits_;
    std::vector<std::int32_t> list_;
    bool more_ = false;  // than are listed
  };

  // The entry of a token; nullopt if it weighs nothing and its value is not kept.
  std::optional<WeightEntry> entry(std::int32_t token) const;
  bool rescale(std::vector<WeightEntry>& list, Index& same) const;
  void forget();
  bool reads(const SketchRow& row) const { return row.head < 0 || row.head == head_; }
  void add(const SketchRow& row);
  void finish(std::size_t token);
  // Whether all numerator weights have the sketch's scale.
  bool is_factored() const { return plain_tokens_ == 0 && own_rows_.empty(); }
  bool is_weighted(std::size_t token) const {
    return plain_[token] != 0.0 || scaled_[token] != 0.0;
  }
  void sum_all(const Sketch& sketch);
  void link_all(const Sketch& sketch);
  void link(std::int32_t id, std::int32_t token);
  void unlink(std::int32_t id);
  // -1: the row was erased.
  Index position_of(std::int32_t id) const;
  void follow(const std::vector<std::int32_t>& positions, std::size_t first);
  // Whether it did: else all are to be summed.
  bool sum_changed(const Sketch& sketch, const std::vector<std::int32_t>& positions,
                   std::size_t first);

  const int head_;
  std::vector<double> den_;
  std::vector<double> num_;
  std::vector<double> plain_;     // w_num of rows that are not scaled
  std::size_t plain_tokens_ = 0;  // that have one
  // w_num of those that are, without the scale; thousands of slots can hold one token, and what
  // rounding takes from their sum is kept next to it.
  std::vector<double> scaled_;
  std::vector<double> scaled_low_;
  std::vector<double> log_;
  std::vector<double> kept_;
  Groups groups_;
  Groups value_groups_;  // with a row that has a numerator weight or holds a value
  std::vector<OwnRow> own_rows_;
  std::vector<std::int32_t> weighted_;
  double last_weight_ = 1.0;  // most tokens weigh the same
  double last_log_ = 0.0;

  ChangeLog::Mark taken_;
  double factor_ = 1.0;
  double scale_ = 0.0;  // within num_
  std::uint64_t version_ = 0;
  // A token's rows in the order of their positions; made when changes are first followed. A row has
  // a number that stays when others are erased, ascending by position.
  bool linked_ = false;
  std::vector<std::int32_t> ids_;       // by position
  std::vector<std::int32_t> token_of_;  // by number, -1: none
  std::vector<std::int32_t> next_;      // by number
  std::vector<std::int32_t> first_;     // by token, -1: none
  std::vector<std::int32_t> touched_;   // numbers of rows that changed or are new
  std::vector<std::int32_t> dirty_;     // tokens to be summed again, with repetitions
  // Facts of the last change of version: whether tokens other than the dirty ones have the same
  // sums, and whether numerators have another scale.
  bool followed_ = false;
  bool rescaled_ = false;
};

}  // namespace kvbench
