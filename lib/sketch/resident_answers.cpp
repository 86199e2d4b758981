#include "sketch/resident_answers.hpp"

#include <algorithm>

#include "sketch/softmax_sums.hpp"

namespace kvbench {
namespace {

// Flushed at this many questions or weights: 32 MB to be copied to the device.
constexpr Index kEnoughQuestions = 4096;
constexpr std::size_t kEnoughWeights = std::size_t{1} << 20;

}  // namespace

Index ResidentAnswers::enqueue(const Sketch& sketch, const WeightsByToken& weights,
                               const QueryRow& query, const HeldVectors* /*held*/) {
  if (version_ != weights.version()) list_weights(weights);
  batch_.questions.push_back(listed_);
  batch_.questions.back().query_index = query.query_index;
  PendingAnswer& question = questions_.emplace_back(query, sketch);
  question.query.max_logit = rows_.max_logit()[static_cast<std::size_t>(query.query_index)];
  question.query.exact_row_max = question.query.max_logit;
  return static_cast<Index>(questions_.size()) - 1;
}

// Puts the weights as they are now into the batch. A method that compressed once gains a token at
// every row: its weights begin with the last row's, and only what is new is added.
void ResidentAnswers::list_weights(const WeightsByToken& weights) {
  version_ = weights.version();
  weights.list(list_);
  const auto last = batch_.weights.end() - listed_.weights;
  const auto added = std::mismatch(last, batch_.weights.end(), list_.begin(), list_.end());
  const bool goes_on = added.first == batch_.weights.end();
  if (!goes_on) listed_.first_weight = static_cast<Index>(batch_.weights.size());
  listed_.weights = static_cast<Index>(list_.size());
  batch_.weights.insert(batch_.weights.end(), goes_on ? added.second : list_.begin(), list_.end());
}

bool ResidentAnswers::should_flush() const {
  return static_cast<Index>(questions_.size()) >= kEnoughQuestions ||
         batch_.weights.size() >= kEnoughWeights;
}

void ResidentAnswers::compute() {
  if (!questions_.empty()) rows_.answer(batch_, numerators_, masses_);
}

bool ResidentAnswers::underflowed(Index question) const {
  return masses_[static_cast<std::size_t>(question)].largest_den < kSafeDenominator;
}

Sketch ResidentAnswers::sketch_of(Index question) const {
  const PendingAnswer& asked = questions_[static_cast<std::size_t>(question)];
  const AnswerBatch::Question& part = batch_.questions[static_cast<std::size_t>(question)];
  Sketch sketch;
  for (Index i = 0; i < part.weights; ++i) {
    const WeightEntry& weight = batch_.weights[static_cast<std::size_t>(part.first_weight + i)];
    SketchRow row;
    row.token = weight.token;
    row.w_num = weight.num;
    row.w_den = weight.den;
    row.keeps_value = weight.kept != 0;
    sketch.add(row);
  }
  sketch.exact_numerator = asked.exact_numerator;
  sketch.exact_denominator = asked.exact_denominator;
  return sketch;
}

const Answer& ResidentAnswers::answer(Index question) {
  PendingAnswer& asked = questions_[static_cast<std::size_t>(question)];
  const TokenSums& sums = masses_[static_cast<std::size_t>(question)].sums;
  const double shift = asked.query.max_logit;
  asked.set_sums(shift, sums);
  asked.answer.kl_divergence = kl_divergence(asked.query, shift, sums, 0.0);
  return asked.finish(numerators_.data() + question * shape_.dv, shape_.dv);
}

void ResidentAnswers::clear() {
  questions_.clear();
  batch_.clear();
  listed_ = {};
  version_ = 0;
}

}  // namespace kvbench
