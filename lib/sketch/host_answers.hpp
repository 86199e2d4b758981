// Answers by logits on the host: of every kind of sketch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "sketch/answer_backend.hpp"
#include "sketch/pending_answer.hpp"
#include "sketch/softmax_sums.hpp"

namespace kvbench {

// A query with its logits.
struct LoggedQuery {
  Index row;
  int head;
  ExactAnswer exact;
  ReadLogits logits;
};

class HostAnswers final : public AnswerBackend {
 public:
  // `block` may be null where every query brings its logits; all must live as long.
  HostAnswers(const Stream& stream, const Kernels& kernels, const RowBlock* block)
      : stream_(stream), block_(block), values_(kernels.weighted_values(stream.values)) {}

  Index enqueue(const Sketch& sketch, const WeightsByToken& weights, const QueryRow& query,
                const HeldVectors* held) override;
  bool should_flush() const override { return values_->full(); }
  void compute() override { values_->sums(numerators_); }
  const Answer& answer(Index question) override;
  void clear() override { questions_.clear(); }

 private:
  LoggedQuery with_logits(const QueryRow& asked) const;
  Exponentials of_row(const LoggedQuery& query, const TokenLogits& logits) const;
  // Under the row's largest logit where no row's is larger and that leaves the denominator well
  // above underflow, else under the largest of the sketch's rows in either sum.
  Exponentials exponentials(const Sketch& sketch, const WeightsByToken& weights,
                            const LoggedQuery& query, const HeldVectors* held);
  void own_logits(const Sketch& sketch, const WeightsByToken& weights, const LoggedQuery& query,
                  const HeldVectors* held);
  // Adds the own rows to the sums and to the numerator.
  void add_own_rows(const Sketch& sketch, const WeightsByToken& weights, double shift,
                    const HeldVectors* held, TokenSums& sums, std::vector<double>& numerator) const;
  void rerotate(const Sketch& sketch, const LoggedQuery& query);
  void enqueue_values(const Sketch& sketch, const WeightsByToken& weights, const Exponentials& e,
                      const HeldVectors* held);
  void enqueue_mapped_values(const WeightsByToken& weights, const Exponentials& e,
                             const HeldVectors& held);
  // Sums that compare the logits x with the exact ones, by the weights as they are now.
  struct Compared {
    double differences = 0.0;  // sum of w_den e (x - exact x)
    double kept = 0.0;         // TokenSums::kept of the exact exponentials
    // Sums over tokens with a weight in the denominator: exact exponentials, the same
    // times x - exact x, and the number of tokens.
    double mass = 0.0;
    double weighted = 0.0;
    double count = 0.0;
  };
  Compared compared(const WeightsByToken& weights, const LoggedQuery& query,
                    const Exponentials& e) const;
  // The divergence; nullopt where no row weighs anything. `sums`: under e's shift; `with`: of e.
  std::optional<double> divergence(const Sketch& sketch, const WeightsByToken& weights,
                                   const LoggedQuery& query, Exponentials e, TokenSums sums,
                                   const Compared& with);
  // Score error of tokens with a weight in the denominator; none where no exponential is left of
  // them.
  std::optional<double> score_error(const WeightsByToken& weights, const LoggedQuery& query,
                                    const Compared& with) const;

  const Stream& stream_;
  const RowBlock* const block_;
  std::vector<PendingAnswer> questions_;
  std::unique_ptr<WeightedValues> values_;
  std::vector<double> numerators_;
  std::vector<double> own_;         // by token: exponentials under a shift of their own
  std::vector<double> own_logits_;  // logits of the sketch's own rows
  // The weighted tokens in the order of their value rows, and these rows; of which weights, and
  // where values are.
  std::vector<std::int32_t> mapped_tokens_, value_rows_;
  const WeightsByToken* mapped_of_ = nullptr;
  std::uint64_t mapped_version_ = 0;
  std::uint64_t value_row_version_ = 0;
  // Tokens of a sketch with cache positions, in order, their logits there, and the same by token.
  std::vector<std::int32_t> cached_;
  std::vector<double> rerotated_;
  std::vector<double> rerotated_by_token_;
};

}  // namespace kvbench
