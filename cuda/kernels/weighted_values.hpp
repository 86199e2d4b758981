// Kernels::weighted_values on a device: thousands of questions per launch, a block per question and
// 128 dimensions. The host makes the weights; they and the lists of tokens go to the device, sums
// come back.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/kernels/device_matrix.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// Where a question's entries lie: tokens[tokens + i] has weights[weights + i], i < count.
struct ValueQuestion {
  Index tokens = 0;
  Index weights = 0;
  Index count = 0;
};

struct SumValues {
  static constexpr int kThreads = 128;  // dimensions per block
  static constexpr int kEntries = 256;  // in shared memory at a time
  static constexpr int kAhead = 16;     // values that a thread fetches at a time

  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  const ValueQuestion* questions = nullptr;
  Index first_token = 0;                 // position at which `tokens` begins
  Index first_weight = 0;                // position at which `weights` begins
  const std::int32_t* tokens = nullptr;  // ascending within a question
  const double* weights = nullptr;
  double* sums = nullptr;  // [questions, dv]

  struct Shared {
    std::int32_t tokens[kEntries];
    double weights[kEntries];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const ValueQuestion question = questions[block.x];
    const std::int32_t* own_tokens = tokens + (question.tokens - first_token);
    const double* own_weights = weights + (question.weights - first_weight);
    const Index column = block.y * kThreads;
    typename B::template Own<double> sum(block);
    block.threads([&](int t) { sum[t] = 0.0; });
    for (Index start = 0; start < question.count; start += kEntries) {
      const Index count = smaller(kEntries, question.count - start);
      block.each(count, [&](Index i) {
        shared.tokens[i] = own_tokens[start + i];
        shared.weights[i] = own_weights[start + i];
      });
      block.threads([&](int t) {
        if (column + t >= dv) return;
        const double* v = values + column + t;
        for (Index i = 0; i < count; i += kAhead) {
          double value[kAhead];  // all asked for before the first is waited for
          KVBENCH_UNROLL
          for (int a = 0; a < kAhead; ++a) {
            value[a] = i + a < count ? v[shared.tokens[i + a] * dv] : 0.0;
          }
          KVBENCH_UNROLL
          for (int a = 0; a < kAhead; ++a) {
            if (i + a < count) sum[t] = fused(shared.weights[i + a], value[a], sum[t]);
          }
        }
      });
    }
    block.threads([&](int t) {
      if (column + t < dv) sums[block.x * dv + column + t] = sum[t];
    });
  }
};

// `make()` gives a machine for a call.
template <MachineFactory Make>
class DeviceWeightedValues final : public WeightedValues {
 public:
  DeviceWeightedValues(ConstMatrix values, Make make) : values_(values), make_(std::move(make)) {}

  double* ask(const std::vector<std::int32_t>& tokens) override {
    const Index count = static_cast<Index>(tokens.size());
    const auto same_list = [&](const ValueQuestion& last) {
      return last.count == count &&
             std::equal(tokens.begin(), tokens.end(), tokens_.begin() + last.tokens);
    };
    ValueQuestion question;
    if (!questions_.empty() && same_list(questions_.back())) {
      question.tokens = questions_.back().tokens;
    } else {
      question.tokens = static_cast<Index>(tokens_.size());
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    }
    question.weights = static_cast<Index>(weights_.size());
    question.count = count;
    questions_.push_back(question);
    longest_ = larger(longest_, count);
    weights_.resize(weights_.size() + tokens.size(), 0.0);
    return weights_.data() + question.weights;
  }
  Index questions() const override { return static_cast<Index>(questions_.size()); }
  bool full() const override {
    return questions() >= kEnoughQuestions || weights_.size() >= kEnoughWeights;
  }

  void sums(std::vector<double>& out) override {
    out.resize(questions_.size() * static_cast<std::size_t>(values_.cols));
    if (!out.empty()) {
      auto machine = make_();
      compute(machine, out);
    }
    questions_.clear();
    tokens_.clear();
    weights_.clear();
    longest_ = 0;
  }

 private:
  static constexpr Index kEnoughQuestions = 4096;  // several times what a device has at work
  static constexpr std::size_t kEnoughWeights = std::size_t{1} << 21;  // 24 MB with their tokens

  template <Machine M>
  void compute(M& machine, std::vector<double>& out) {
    const Index dv = values_.cols;
    DeviceMatrix values(machine, values_);
    const auto room =
        machine.reserve({.what = "answers",
                         .fixed_bytes = values.bytes(),
                         .row_bytes = bytes_of_doubles(longest_ + dv) +
                                      longest_ * static_cast<Index>(sizeof(std::int32_t)) +
                                      static_cast<Index>(sizeof(ValueQuestion)),
                         .rows = questions()});
    SumValues sum;
    sum.values = values.bring();
    sum.dv = dv;
    auto asked = machine.template allocate<ValueQuestion>(room.rows());
    auto tokens = machine.template allocate<std::int32_t>(room.rows() * longest_);
    auto weights = machine.template allocate<double>(room.rows() * longest_);
    auto sums = machine.template allocate<double>(room.rows() * dv);
    sum.questions = asked.data();
    sum.tokens = tokens.data();
    sum.weights = weights.data();
    sum.sums = sums.data();
    for (Index first = 0; first < questions(); first += room.rows()) {
      const Index batch = smaller(room.rows(), questions() - first);
      const ValueQuestion& begin = questions_[static_cast<std::size_t>(first)];
      const ValueQuestion& last = questions_[static_cast<std::size_t>(first + batch - 1)];
      sum.first_token = begin.tokens;
      sum.first_weight = begin.weights;
      machine.upload(asked.data(), &begin, batch);
      machine.upload(tokens.data(), tokens_.data() + begin.tokens,
                     last.tokens + last.count - begin.tokens);
      machine.upload(weights.data(), weights_.data() + begin.weights,
                     last.weights + last.count - begin.weights);
      machine.launch(sum, {.x = batch, .y = blocks_of(SumValues::kThreads, dv)});
      machine.download(out.data() + first * dv, sums.data(), batch * dv);
    }
  }

  const ConstMatrix values_;
  Make make_;
  std::vector<ValueQuestion> questions_;  // in a row about the same tokens share their list
  std::vector<std::int32_t> tokens_;
  std::vector<double> weights_;
  Index longest_ = 0;  // entries of a question
};

}  // namespace kvbench::cuda
