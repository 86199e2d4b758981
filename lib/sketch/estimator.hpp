// The estimator: turns a sketch and a query into an answer. Every algorithm is answered here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/lanes.hpp"
#include "core/stream.hpp"
#include "kernels/held_rows.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "sketch/sketch.hpp"
#include "sketch/weights_by_token.hpp"

namespace kvbench {

// One query head of one row: its logits x[j] over the visible tokens, e[j] = exp(x[j] - max_logit),
// and the exact sums, which are scaled by exp(-exact_max). Where x is null, logits, exponentials
// and their maximum are those at `place` of the estimator's block.
struct QueryRow {
  const double* x = nullptr;
  const double* e = nullptr;
  double max_logit = 0.0;
  const double* exact_output = nullptr;  // [dv]
  double exact_max = 0.0;
  double exact_normalizer = 0.0;  // Z exp(-exact_max)
  Index row = 0;                  // which row and query head it is
  int head = 0;
  Index place = 0;  // r * G + g of the block
};

struct Answer {
  std::vector<double> answer;           // [dv] z
  std::vector<double> numerator;        // [dv] N^ exp(-exact_max)
  double normalizer = 0.0;              // tau exp(-exact_max)
  bool empty_denominator = false;       // no row, or 0 after the shift: answer = 0
  std::optional<double> kept_mass;      // sum of p_j over distinct tokens whose value is held
  double numerator_mass = 0.0;          // sum w_num e^x / Z
  double denominator_mass = 0.0;        // sum w_den e^x / Z
  std::optional<double> kl_divergence;  // KL(p^ || p), p^_j proportional to w_den e^x_j
  bool rows_are_tokens = true;          // false: kept_mass and kl_divergence have no meaning
};

// Evaluates z = sum w_num exp(x) v / sum w_den exp(x) with one shift, so that nothing overflows:
// the row's largest logit if that leaves the denominator well above underflow, else the largest
// logit of the rows in either sum. Where the block's exponentials are held by the kernel table,
// sketches of plain tokens are answered there. Keeps scratch memory; one per thread.
class Estimator {
 public:
  // `block` may be null if every query brings its logits; all must live as long.
  Estimator(const Stream& stream, const Kernels& kernels, const RowBlock* block = nullptr);

  // Takes up a sketch; questions refer to it as it is now, also if they are answered later.
  void take(const Sketch& sketch);
  // `query.exact_output` must live until the answer.
  void ask(const QueryRow& query);
  Index questions() const { return static_cast<Index>(questions_.size()); }
  // Whether it is time for the answers: more questions at once would gain nothing.
  bool full() const;
  // Visits the answers of all questions, in their order. Bits do not depend on how many there are.
  void answer(const std::function<void(const Answer&)>& visit);

 private:
  // What is known of an answer before the values are read.
  struct Question {
    QueryRow query;
    Answer estimate;  // numerator: the merged rows' part, or none
    bool exact_numerator = false;
    bool exact_denominator = false;
    bool by_held_rows = false;
    double tau = 0.0;
    double to_exact = 0.0;    // from this shift to that of the exact sums
    double from_exact = 0.0;  // and back
  };
  // exp(x - shift) by token, nothing outside of [first, last).
  struct Exponentials {
    const double* e = nullptr;
    Index first = 0;
    Index last = 0;
    double shift = 0.0;

    Lanes group(Index g) const;  // of eight tokens, zeros outside
  };

  Exponentials of_row(const QueryRow& query) const;
  Exponentials exponentials(const QueryRow& query);
  // Re-shifted by max(least, max x over the tokens j with counts(j)).
  template <class Counts>
  Exponentials own_exponentials(const double* x, double least, const Counts& counts);
  // By the weights as they are now.
  TokenSums sums(const Exponentials& e) const;
  // KL(p^ || p); none if no row has weight. `sum`: under e's shift.
  std::optional<double> divergence(const QueryRow& query, Exponentials e, TokenSums sum);

  void ask_here(const QueryRow& query);
  void ask_held_rows(const QueryRow& query);
  void list_weights();
  // Fills in all but the vectors and the KL divergence, from sums under `shift`.
  static void settle(Question& question, double shift, const TokenSums& sum);
  // Fallback on the host if the shift of the held rows underflows the sums.
  void answer_alone(const Question& question, const AnswerBatch::Question& asked,
                    const std::function<void(const Answer&)>& visit);

  const Stream& stream_;
  const RowBlock* const block_;
  const Sketch* sketch_ = nullptr;
  WeightsByToken weights_;
  std::vector<std::int32_t> cached_;  // the sketch's tokens in order, only with cache positions
  std::vector<double> turned_;        // their logits at these positions
  std::vector<double> turned_of_;     // the same by token
  std::vector<double> own_;           // by token: exponentials under a shift of their own

  std::vector<Question> questions_;
  std::unique_ptr<WeightedValues> values_;  // of questions answered here
  std::vector<double> numerators_;
  AnswerBatch batch_;              // those answered by held rows
  AnswerBatch::Question listed_;   // by the last of its weights
  std::uint64_t version_ = 0;      // theirs, 0: none
  std::vector<TokenWeight> list_;  // scratch
  std::vector<double> held_numerators_;
  std::vector<AnswerMasses> masses_;
  std::unique_ptr<Estimator> alone_;  // made when it is first needed
};

}  // namespace kvbench
