// The estimator: turns a sketch and a query into an answer. Every algorithm is answered here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "sketch/answer.hpp"
#include "sketch/host_answers.hpp"
#include "sketch/query_row.hpp"
#include "sketch/resident_answers.hpp"
#include "sketch/sketch.hpp"
#include "sketch/weights_by_token.hpp"

namespace kvbench {

// Evaluates z = sum w_num exp(x) v / sum w_den exp(x) with one shift, so that nothing overflows:
// the row's largest logit where that leaves the denominator well above underflow, else the largest
// logit of the rows in either sum. Sketches of plain tokens are answered from the block's kept
// exponentials; the others, and those that underflow there, by logits on the host. Keeps scratch
// memory; one per thread.
class Estimator {
 public:
  // `block` may be null where every query brings its logits; all must live as long.
  Estimator(const Stream& stream, const Kernels& kernels, const RowBlock* block = nullptr);

  // The sketch of the questions that follow; they refer to it as it is now, also where they are
  // answered later. `held`: what is read in place of its vectors, until the next sketch; queries
  // then bring their logits. Null: its vectors.
  void set_sketch(const Sketch& sketch, const HeldVectors* held = nullptr);
  // Adds a question. `query.exact.output` must live until the flush.
  void enqueue(const QueryRow& query);
  // Vectors in the numerator's sum for a query head of the sketch: tokens, and rows with a key or a
  // value of their own.
  Index values_summed(int head);
  Index pending() const { return std::ssize(pending_); }
  // Whether more questions at once would gain nothing.
  bool should_flush() const;
  // Visits the answers of all questions, in their order. Bits do not depend on how many there are.
  void flush(const std::function<void(const Answer&)>& visit);

 private:
  // Weights that the query head reads, as the sketch is now.
  const WeightsByToken& weights_of(int head);

  struct Ticket {
    AnswerBackend* backend;
    Index question;  // its number there
  };

  void retry_underflows();

  const Index tokens_;
  const Sketch* sketch_ = nullptr;
  const HeldVectors* vectors_ = nullptr;
  WeightsByToken weights_;
  std::vector<std::unique_ptr<WeightsByToken>> by_head_;  // weights of sketches that differ by head
  HostAnswers host_;
  std::optional<ResidentAnswers> resident_;
  std::vector<Ticket> pending_;
  std::optional<WeightsByToken> retried_;  // weights of one question
};

}  // namespace kvbench
