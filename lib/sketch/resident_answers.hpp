// Answers from exponentials of the current rows that a kernel table, or the host, keeps: of
// sketches of plain tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.hpp"
#include "kernels/resident_rows.hpp"
#include "sketch/answer_backend.hpp"
#include "sketch/pending_answer.hpp"

namespace kvbench {

class ResidentAnswers final : public AnswerBackend {
 public:
  // Both must live as long.
  ResidentAnswers(const Stream& stream, const ResidentRows& rows);
  ResidentAnswers(const ResidentAnswers&) = delete;
  ResidentAnswers& operator=(const ResidentAnswers&) = delete;
  ~ResidentAnswers() override;

  // Whether sketches with these weights are answered here.
  static bool takes(const Sketch& sketch, const WeightsByToken& weights) {
    return !sketch.cache_positions && !sketch.differs_by_head() && !sketch.answer_rule &&
           weights.own_rows().empty();
  }

  Index enqueue(const Sketch& sketch, const WeightsByToken& weights, const QueryRow& query,
                const HeldVectors* held) override;
  bool should_flush() const override { return rows_.is_enough(batch_); }
  void compute() override;
  const Answer& answer(Index question) override;  // valid until the next one
  void clear() override;

  // After compute(): whether the row's largest logit, as a shift, took the digits from the sums, so
  // that there is no answer here.
  bool underflowed(Index question) const;
  // The question again: a sketch with its weights, and the query.
  Sketch sketch_of(Index question) const;
  const QueryRow& query_of(Index question) const { return questions_[question].query; }

 private:
  void list_weights(const WeightsByToken& weights);

  const Stream& stream_;
  const ResidentRows& rows_;
  std::vector<PendingAnswer> questions_;
  AnswerBatch batch_;
  AnswerBatch::Question listed_;   // by the last of the batch's weights
  bool is_listed_ = false;         // whether list_ is what it is by
  std::vector<WeightEntry> list_;  // weights of this version, 0: none
  std::uint64_t version_ = 0;
  std::vector<double> numerators_;
  std::vector<AnswerMasses> masses_;
  Answer last_;  // its vectors are used again
};

}  // namespace kvbench
