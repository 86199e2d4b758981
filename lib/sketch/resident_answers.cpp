#include "sketch/resident_answers.hpp"

#include <algorithm>
#include <utility>

#include "numerics/canonical.hpp"
#include "sketch/softmax_sums.hpp"

namespace kvbench {
namespace {

// Memory for the lists of the next cell: pages from the system take longer to come than lists of
// rows that go from the middle take to be written (h2o).
thread_local std::vector<WeightEntry> spare;
constexpr std::size_t kMaxSpare = std::size_t{1} << 18;  // entries, 8 MiB

}  // namespace

ResidentAnswers::ResidentAnswers(const Stream& stream, const ResidentRows& rows)
    : stream_(stream), rows_(rows) {
  batch_.weights.swap(spare);
}

ResidentAnswers::~ResidentAnswers() {
  batch_.weights.clear();
  const std::size_t room = batch_.weights.capacity();
  if (room <= kMaxSpare && room > spare.capacity()) batch_.weights.swap(spare);
}

Index ResidentAnswers::enqueue(const Sketch& sketch, const WeightsByToken& weights,
                               const QueryRow& query, const HeldVectors* /*held*/) {
  if (!is_listed_ || version_ != weights.version()) list_weights(weights);
  batch_.questions.push_back(listed_);
  batch_.questions.back().query_index = query.query_index;
  const double largest = rows_.max_logit()[query.query_index];
  questions_.emplace_back(query, largest, sketch, weights.factor());
  return std::ssize(questions_) - 1;
}

// Puts the weights as they are now into the batch. A method that compressed once gains a token at
// every row, a window loses its first one besides: only what is new is added.
void ResidentAnswers::list_weights(const WeightsByToken& weights) {
  const bool is_next = version_ != 0 && weights.version() == version_ + 1;
  WeightsByToken::Common common;
  if (is_next && weights.can_update()) {
    common = weights.update(list_);
  } else if (version_ != weights.version()) {
    weights.list(list_);
    const auto last = batch_.weights.end() - listed_.weights;
    common.same =
        std::mismatch(last, batch_.weights.end(), list_.begin(), list_.end()).first - last;
  }
  version_ = weights.version();
  const bool goes_on = is_listed_ && common.dropped + common.same == listed_.weights;
  listed_.first_weight =
      goes_on ? listed_.first_weight + common.dropped : std::ssize(batch_.weights);
  listed_.weights = std::ssize(list_);
  batch_.weights.insert(batch_.weights.end(), list_.begin() + (goes_on ? common.same : 0),
                        list_.end());
  is_listed_ = true;
}

void ResidentAnswers::compute() {
  if (!questions_.empty()) rows_.answer(batch_, numerators_, masses_);
}

bool ResidentAnswers::underflowed(Index question) const {
  const std::size_t at = question;
  const PendingAnswer& asked = questions_[at];
  return masses_[at].largest_den < kSafeDenominator &&
         canonical_exp(stream_.sink(asked.query.head) - asked.largest_logit) < kSafeDenominator;
}

Sketch ResidentAnswers::sketch_of(Index question) const {
  const PendingAnswer& asked = questions_[question];
  const AnswerBatch::Question& part = batch_.questions[question];
  Sketch sketch;
  for (Index i = 0; i < part.weights; ++i) {
    const WeightEntry& weight = batch_.weights[part.first_weight + i];
    SketchRow row;
    row.token = weight.token;
    row.w_num = weight.num;
    row.scaled = asked.factor != 1.0;
    row.w_den = weight.den;
    row.keeps_value = weight.kept != 0;
    sketch.add(row);
  }
  sketch.numerator_scale = asked.factor;
  sketch.exact_numerator = asked.exact_numerator;
  sketch.exact_denominator = asked.exact_denominator;
  return sketch;
}

const Answer& ResidentAnswers::answer(Index question) {
  PendingAnswer& asked = questions_[question];
  asked.answer.answer = std::move(last_.answer);
  asked.answer.numerator = std::move(last_.numerator);
  asked.answer.numerator.clear();
  TokenSums sums = masses_[question].sums;
  sums.num *= asked.factor;
  const double shift = asked.largest_logit;
  add_sink(stream_.sink(asked.query.head), shift, sums);
  asked.set_sums(shift, sums);
  asked.answer.kl_divergence = kl_divergence(asked.query.exact, shift, sums, 0.0);
  const Index dv = stream_.shape.dv;
  asked.finish(numerators_.data() + question * dv, dv);
  last_ = std::move(asked.answer);
  return last_;
}

void ResidentAnswers::clear() {
  questions_.clear();
  batch_.clear();
  listed_ = {};
  is_listed_ = false;
}

}  // namespace kvbench
