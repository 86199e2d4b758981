// Where the estimator's answers are computed.
#pragma once

#include "sketch/answer.hpp"
#include "sketch/held_vectors.hpp"
#include "sketch/query_row.hpp"
#include "sketch/sketch.hpp"
#include "sketch/weights_by_token.hpp"

namespace kvbench {

// A queue of questions, which are answered together: the values are read once for many of them. How
// many does not change a bit of any answer.
class AnswerBackend {
 public:
  AnswerBackend() = default;
  AnswerBackend(const AnswerBackend&) = delete;
  AnswerBackend& operator=(const AnswerBackend&) = delete;
  virtual ~AnswerBackend() = default;

  // Adds a question about the sketch, whose weights these are, as both are now. `held`: what is
  // read in place of its vectors; null: these. Returns its number in the queue, from 0.
  // `query.exact.output` must live until the answer.
  virtual Index enqueue(const Sketch& sketch, const WeightsByToken& weights, const QueryRow& query,
                        const HeldVectors* held) = 0;
  // Whether more questions at once would gain nothing.
  virtual bool should_flush() const = 0;

  // Reads the values for all questions. After it: their answers, each once and valid until the
  // next; then clear().
  virtual void compute() = 0;
  virtual const Answer& answer(Index question) = 0;
  virtual void clear() = 0;
};

}  // namespace kvbench
