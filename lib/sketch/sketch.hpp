// The sketch: everything that an algorithm holds, as weighted rows (key, value, w_num, w_den).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/stream.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// One row. `token` names the stream token whose key and value it is, unless `own_key` or
// `own_value` replaces them.
// The answer to a query with logits x is  sum w_num exp(x) v / sum w_den exp(x)  over all rows.
struct SketchRow {
  double w_num = 0.0;
  double w_den = 0.0;
  std::int32_t token = -1;      // -1: of no token; then it has a key and a value of its own
  std::int32_t own_key = -1;    // row of Sketch::own_keys that replaces the key
  std::int32_t own_value = -1;  // row of Sketch::own_values that replaces the value
  std::int32_t copies = 1;      // equal rows that are kept; the weights are those of all of them
  std::int16_t head = -1;       // the query head of the group that reads it; -1: all of them
  bool keeps_key = true;
  bool keeps_value = true;
  bool counts_as_token = true;      // SubGen's representatives are keys, but no samples
  bool feature = false;             // a feature of the exponential; then it has a key of its own
  bool scaled = false;              // w_num is multiplied by Sketch::numerator_scale
  std::uint8_t weight_numbers = 0;  // numbers stored for its weights: one per distinct column

  // A place that holds nothing (a slot not yet filled).
  bool is_empty() const { return token < 0 && own_key < 0; }

  static SketchRow exact(Index token) {
    SketchRow row;
    row.token = static_cast<std::int32_t>(token);
    row.w_num = row.w_den = 1.0;
    return row;
  }
};

// Counts of what a sketch holds; kept up to date as rows come and go.
struct KeptCounts {
  Index tokens = 0;       // rows that count as tokens, duplicates included
  Index keys = 0;         // key vectors
  Index values = 0;       // value vectors
  Index pairs = 0;        // both, a token's own key and value in one row
  Index bookkeeping = 0;  // further numbers: weights, scores, counts

  bool operator==(const KeptCounts&) const = default;
  KeptCounts& operator+=(const KeptCounts& other);
  KeptCounts& operator-=(const KeptCounts& other);
};

// Counts of one row.
KeptCounts counts_of(const SketchRow& row);

inline constexpr Index kBookkeepingBytes = 4;  // a number

// Numbers of keys and values. Where values lie in the keys, a pair is a key.
Index numbers_of(const KeptCounts& kept, const StreamShape& shape);
// Bytes of keys and values at `element_bytes` a number, and of bookkeeping.
Index bytes_of(const KeptCounts& kept, const StreamShape& shape, int element_bytes);
// Key and value of each of `tokens` tokens.
KeptCounts whole_tokens(Index tokens);
// Bytes of all tokens that a row sees at most: the exact cache.
Index exact_bytes(const StreamShape& shape, int element_bytes);

// Which positions changed, for readers that cache derived data. A copy starts a new era, so
// that no reader takes one sketch for another.
class ChangeLog {
 public:
  struct Mark {
    std::uint64_t era = 0;  // none has this number
    std::size_t length = 0;

    bool operator==(const Mark&) const = default;
  };

  ChangeLog() { begin_anew(); }
  ChangeLog(const ChangeLog&) : ChangeLog() {}
  ChangeLog& operator=(const ChangeLog&) {
    begin_anew();
    return *this;
  }

  // All is new, or too many positions changed to be listed.
  void begin_anew();
  // The row at `position` of `rows` changed or is new; -1 - position: one that was there went.
  void note(Index position, Index rows) {
    if (std::ssize(positions_) > rows + kAtLeast) begin_anew();
    positions_.push_back(static_cast<std::int32_t>(position));
  }
  Mark now() const { return {era_, positions_.size()}; }
  // All changes of `mark`'s era in their order, of which the first `mark.length` precede it; null
  // if that era is over.
  const std::vector<std::int32_t>* since(const Mark& mark) const {
    return mark.era == era_ ? &positions_ : nullptr;
  }

 private:
  static constexpr Index kAtLeast = 64;

  std::uint64_t era_ = 0;
  std::vector<std::int32_t> positions_;  // with repetitions
};

// Changes to the sums' ratio before it is the answer; for methods whose denominator weights may be
// negative.
struct AnswerRule {
  // The answer is 0 where sum w_den exp(x) <= least_denominator * sum w_num exp(x); as everywhere,
  // also where the former is not positive.
  double least_denominator = 0.0;
  // Answers, including the 0 above, are clamped to [low, high], channel by channel; [dv] each, or
  // empty: no clamping. The sketch stores these numbers.
  std::vector<double> low;
  std::vector<double> high;
};

class Sketch {
 public:
  // Appends a row and returns its position.
  Index add(const SketchRow& row);
  void add_exact(Index first, Index last);  // tokens [first, last) with weight 1
  void replace(Index position, const SketchRow& row);
  void set_weights(Index position, double w_num, double w_den);
  void erase(Index position);           // keeps the order of the others
  void erase(Index first, Index last);  // positions [first, last)
  void clear();

  Index size() const { return std::ssize(rows_); }
  const SketchRow& operator[](Index position) const { return rows_[position]; }
  const std::vector<SketchRow>& rows() const { return rows_; }
  const ChangeLog& changes() const { return changes_; }

  // The w_num of `scaled` rows is multiplied by this (SubGen's slots: mu), so that a common factor
  // can change each step.
  double numerator_scale = 1.0;
  // Replace one of the two sums by the exact one (attribution of the error).
  bool exact_numerator = false;
  bool exact_denominator = false;
  // Rows are at positions 0 .. size - 1 in order, the last one where the query is: keys are
  // turned from their own position to that one before they are attended to (needs RoPE data).
  bool cache_positions = false;
  // Keys that belong to no token, [rows, d], and values (means of clusters), [rows, dv].
  std::vector<std::vector<double>> own_keys;
  std::vector<std::vector<double>> own_values;
  // Logit of a `feature` row with key w: scale <q, w> - scale |q|^2 / 2 + feature_shift, which no
  // soft-cap changes: with w of normal numbers over sqrt(scale), feature_shift = -scale |k|^2 / 2
  // and a weight of exp(scale <w, k>), its expectation over w is that of exp(scale <q, k>).
  double feature_shift = 0.0;
  // As it is now; null: none. Answered on the host.
  std::shared_ptr<const AnswerRule> answer_rule;
  // Bytes that a method says it stores for some of its rows, in place of what is counted for them.
  struct Declared {
    Index bytes = 0;
    KeptCounts covered;  // these rows
  };
  std::optional<Declared> declared;
  // Numbers stored besides the rows (scores, counts): set by the algorithm.
  Index bookkeeping = 0;
  // Storage and reads of a method that looks before it reads: what it stores besides keys and
  // values to find the rows of an answer (bounds of pages, codes of keys), and what of it one
  // answer reads; and the numbers of held keys that it reads to find them, as wide as the cache has
  // them. Other numbers are as wide as those of a cache that no codec writes; bits are bits.
  // Methods that evict may have shared ones too.
  struct Lookup {
    Index held_numbers = 0;
    Index held_bits = 0;
    Index read_numbers = 0;
    Index read_bits = 0;
    Index read_key_numbers = 0;
    // Numbers that an answer needs besides the cache, for any number of tokens: random projections,
    // bases, chosen channels. Next to all other counts, and no part of what a row reads.
    Index shared_numbers = 0;
    Index shared_bits = 0;

    bool operator==(const Lookup&) const = default;
  };
  Lookup lookup;
  // The cache of a method that drops no token while it answers (never_evicts), if some had gone
  // before: its tokens, ascending, and numbers besides their vectors. None: all that a row sees.
  struct Held {
    std::vector<std::int32_t> tokens;
    Index bookkeeping = 0;

    KeptCounts counts() const;
  };
  std::optional<Held> held;

  // The same rows of other tokens: tokens[t] in place of token t.
  Sketch renamed(const std::vector<std::int32_t>& tokens) const;

  // Constant time.
  KeptCounts kept_counts() const;
  // Whether query heads of the group read different rows. Constant time.
  bool differs_by_head() const { return rows_of_one_head_ > 0; }

 private:
  void count(const SketchRow& row, Index sign);

  std::vector<SketchRow> rows_;
  KeptCounts kept_;
  Index rows_of_one_head_ = 0;
  ChangeLog changes_;
};

// Number of different stream tokens of which the sketch holds anything.
Index distinct_tokens(const Sketch& sketch);

// Whole bytes that the given numbers and bits take.
Index lookup_bytes(Index numbers, Index bits, int element_bytes);

}  // namespace kvbench
