#include "sketch/estimator.hpp"

#include <algorithm>

namespace kvbench {

Estimator::Estimator(const Stream& stream, const Kernels& kernels, const RowBlock* block)
    : tokens_(stream.shape.tokens), weights_(tokens_), host_(stream, kernels, block) {
  if (block != nullptr) resident_.emplace(stream, block->resident());
}

void Estimator::set_sketch(const Sketch& sketch, const HeldVectors* held) {
  sketch_ = &sketch;
  vectors_ = held;
  if (!sketch.differs_by_head()) weights_.take(sketch);
}

const WeightsByToken& Estimator::weights_of(int head) {
  if (!sketch_->differs_by_head()) return weights_;
  const std::size_t h = head;
  if (by_head_.size() <= h) by_head_.resize(h + 1);
  if (!by_head_[h]) by_head_[h] = std::make_unique<WeightsByToken>(tokens_, head);
  by_head_[h]->take(*sketch_);
  return *by_head_[h];
}

void Estimator::enqueue(const QueryRow& query) {
  const bool by_block = !query.logits;
  const WeightsByToken& weights = weights_of(query.head);
  const bool resident = resident_ && by_block && ResidentAnswers::takes(*sketch_, weights);
  AnswerBackend& backend = resident ? static_cast<AnswerBackend&>(*resident_) : host_;
  pending_.push_back({&backend, backend.enqueue(*sketch_, weights, query, vectors_)});
}

Index Estimator::values_summed(int head) {
  const WeightsByToken& weights = weights_of(head);
  const auto& own = weights.own_rows();
  const auto summed = std::count_if(
      own.begin(), own.end(), [](const WeightsByToken::OwnRow& row) { return row.w_num != 0.0; });
  return std::ssize(weights.weighted()) + summed;
}

bool Estimator::should_flush() const {
  return host_.should_flush() || (resident_ && resident_->should_flush());
}

// On the host, under a shift of their own.
void Estimator::retry_underflows() {
  for (Ticket& ticket : pending_) {
    if (ticket.backend != &*resident_ || !resident_->underflowed(ticket.question)) continue;
    const Sketch sketch = resident_->sketch_of(ticket.question);
    if (!retried_) retried_.emplace(tokens_);
    retried_->take(sketch);
    const QueryRow query = resident_->query_of(ticket.question);
    ticket = {&host_, host_.enqueue(sketch, *retried_, query, nullptr)};
  }
}

void Estimator::flush(const std::function<void(const Answer&)>& visit) {
  if (resident_) {
    resident_->compute();
    retry_underflows();
  }
  host_.compute();
  for (const Ticket& ticket : pending_) visit(ticket.backend->answer(ticket.question));
  pending_.clear();
  host_.clear();
  if (resident_) resident_->clear();
}

}  // namespace kvbench
