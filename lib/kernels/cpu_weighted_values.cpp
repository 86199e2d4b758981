#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/cpu_kernels.hpp"
#include "kernels/weighted_values.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"

namespace kvbench {
namespace {

// Questions x lanes of columns whose sums stay in registers.
constexpr int kQuestionsAtOnce = 6;
#if defined(__AVX512F__)
constexpr int kWidth = 4;
#else
constexpr int kWidth = 1;
#endif
constexpr Index kTokensAtOnce = 32;     // value rows that stay in the first cache for all questions
constexpr Index kEnoughQuestions = 24;  // that one reading of the values serves

// out[q][0..8 Width) += sum over `count` tokens of c[i][q] v[i][0..8 Width), ascending.
template <int Width>
void add_lanes(ConstMatrix values, const std::int32_t* tokens, Index count, Index column,
               const double* c, Index stride, double* out, Index out_stride) {
  Lanes sums[kQuestionsAtOnce * Width];
  const auto place = [&](auto i) {
    return out + i / Width * out_stride + i % Width * Lanes::kCount;
  };
  unrolled<kQuestionsAtOnce * Width>([&](auto i) { sums[i] = Lanes::load(place(i)); });
  for (Index i = 0; i < count; ++i) {
    const double* row = values.row(tokens[i]) + column;
    Lanes v[Width];
    unrolled<Width>([&](auto w) { v[w] = Lanes::load(row + w * Lanes::kCount); });
    const double* some = c + i * stride;
    unrolled<kQuestionsAtOnce * Width>(
        [&](auto q) { sums[q] = Lanes::fma(Lanes::all(some[q / Width]), v[q % Width], sums[q]); });
  }
  unrolled<kQuestionsAtOnce * Width>([&](auto i) { sums[i].store(place(i)); });
}

// The same for columns too few for a whole lane.
void add_tail(ConstMatrix values, const std::int32_t* tokens, Index count, Index column,
              const double* c, Index stride, double* out, Index out_stride) {
  for (Index k = column; k < values.cols; ++k) {
    for (Index q = 0; q < kQuestionsAtOnce; ++q) {
      double sum = out[q * out_stride + k - column];
      for (Index i = 0; i < count; ++i) {
        sum = std::fma(c[i * stride + q], values(tokens[i], k), sum);
      }
      out[q * out_stride + k - column] = sum;
    }
  }
}

// The values are read once for all questions.
class CpuWeightedValues final : public WeightedValues {
 public:
  explicit CpuWeightedValues(ConstMatrix values)
      : values_(values), asked_about_((values.rows + 63) / 64, 0) {}

  double* ask(const std::vector<std::int32_t>& tokens) override;
  Index questions() const override { return std::ssize(questions_); }
  bool full() const override { return questions() >= kEnoughQuestions; }
  void sums(std::vector<double>& out) override;

 private:
  struct Question {
    std::size_t list = 0;   // its list of tokens
    std::size_t first = 0;  // first of its coefficients
    std::size_t done = 0;   // how many of them are laid out
  };

  void unite_lists();
  void lay_out(Index first, Index last, Index stride);

  const ConstMatrix values_;
  std::vector<Question> questions_;
  std::vector<std::vector<std::int32_t>> lists_;  // the first `lists_used_` of them
  std::size_t lists_used_ = 0;
  std::vector<double> given_;  // coefficients, question after question
  std::vector<std::uint64_t> asked_about_;
  std::vector<std::int32_t> tokens_;  // tokens of any question, ascending
  std::vector<double> coefficients_;  // [some of tokens_, questions padded to whole blocks]
  std::vector<double> sums_;          // [questions padded, dv]
};

double* CpuWeightedValues::ask(const std::vector<std::int32_t>& tokens) {
  if (lists_used_ == 0 || lists_[lists_used_ - 1] != tokens) {
    if (lists_used_ == lists_.size()) lists_.emplace_back();
    lists_[lists_used_++] = tokens;
  }
  questions_.push_back({lists_used_ - 1, given_.size(), 0});
  given_.resize(given_.size() + tokens.size(), 0.0);
  return given_.data() + questions_.back().first;
}

void CpuWeightedValues::unite_lists() {
  if (lists_used_ == 1) {
    tokens_ = lists_.front();
    return;
  }
  for (std::size_t l = 0; l < lists_used_; ++l) {
    for (const std::int32_t token : lists_[l]) {
      asked_about_[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
    }
  }
  tokens_.clear();
  for (std::size_t w = 0; w < asked_about_.size(); ++w) {
    for (std::uint64_t bits = asked_about_[w]; bits != 0; bits &= bits - 1) {
      tokens_.push_back(static_cast<std::int32_t>(64 * w) + std::countr_zero(bits));
    }
    asked_about_[w] = 0;
  }
}

// Coefficients of tokens_[first, last), zeros if a question leaves out a token.
void CpuWeightedValues::lay_out(Index first, Index last, Index stride) {
  std::fill_n(coefficients_.begin(), (last - first) * stride, 0.0);
  for (std::size_t q = 0; q < questions_.size(); ++q) {
    Question& question = questions_[q];
    const std::vector<std::int32_t>& list = lists_[question.list];
    const double* given = given_.data() + question.first;
    double* place = coefficients_.data() + q;
    const std::size_t some = last - first;
    // Both ascend, and every token of the list is one of these: equal ends and an equal count mean
    // equal tokens.
    if (question.done + some <= list.size() && list[question.done] == tokens_[first] &&
        list[question.done + some - 1] == tokens_[last - 1]) {
      for (std::size_t i = 0; i < some; ++i, place += stride) *place = given[question.done + i];
      question.done += some;
      continue;
    }
    for (Index i = first; i < last && question.done < list.size(); ++i, place += stride) {
      if (list[question.done] != tokens_[i]) continue;
      *place = given[question.done++];
    }
  }
}

void CpuWeightedValues::sums(std::vector<double>& out) {
  unite_lists();
  const Index count = std::ssize(tokens_);
  const Index asked = questions();
  const Index stride = (asked + kQuestionsAtOnce - 1) / kQuestionsAtOnce * kQuestionsAtOnce;
  coefficients_.resize(kTokensAtOnce * stride);
  const Index dv = values_.cols;
  sums_.assign(stride * dv, 0.0);
  for (Index first = 0; first < count; first += kTokensAtOnce) {
    const Index some = std::min(kTokensAtOnce, count - first);
    lay_out(first, first + some, stride);
    for (Index q = 0; q < stride; q += kQuestionsAtOnce) {
      const double* c = coefficients_.data() + q;
      double* sums = sums_.data() + q * dv;
      Index k = 0;
      for (; k + kWidth * Lanes::kCount <= dv; k += kWidth * Lanes::kCount) {
        add_lanes<kWidth>(values_, tokens_.data() + first, some, k, c, stride, sums + k, dv);
      }
      for (; k + Lanes::kCount <= dv; k += Lanes::kCount) {
        add_lanes<1>(values_, tokens_.data() + first, some, k, c, stride, sums + k, dv);
      }
      add_tail(values_, tokens_.data() + first, some, k, c, stride, sums + k, dv);
    }
  }
  out.assign(sums_.begin(), sums_.begin() + asked * dv);
  questions_.clear();
  lists_used_ = 0;
  given_.clear();
}

}  // namespace

std::unique_ptr<WeightedValues> CpuKernels::weighted_values(ConstMatrix values) const {
  return std::make_unique<CpuWeightedValues>(values);
}

}  // namespace kvbench
