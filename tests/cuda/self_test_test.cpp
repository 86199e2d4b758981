// The check before a device is used: green on right kernels, red on each kernel that errs.
#include "cuda/self_test.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels_on_host.hpp"
#include "support/kernel_contracts.hpp"
#include "support/wrapped_kernels.hpp"

namespace kvbench::test {
namespace self_test_test {

// Weighted sums of the CPU, the last of which is off.
class OffSums final : public WeightedValues {
 public:
  explicit OffSums(ConstMatrix values) : right_(cpu_kernels().weighted_values(values)) {}

  double* ask(const std::vector<std::int32_t>& tokens) override { return right_->ask(tokens); }
  Index questions() const override { return right_->questions(); }
  bool full() const override { return right_->full(); }
  void sums(std::vector<double>& out) override {
    right_->sums(out);
    out.back() = std::nextafter(out.back(), 1e9);
  }

 private:
  std::unique_ptr<WeightedValues> right_;
};

// Rows of the CPU, whose last mass or numerator is off.
class OffRows final : public ResidentRows {
 public:
  OffRows(const Stream& stream, const std::vector<Index>& rows, bool numerators)
      : OffRows(stream, block_of(stream, rows), numerators) {}

  bool is_enough(const AnswerBatch&) const override { return false; }
  void answer(const AnswerBatch& batch, std::vector<double>& numerators,
              std::vector<AnswerMasses>& masses) const override {
    cuda::answer_by_logits(stream_, block_, batch, numerators, masses);
    double& off = numerators_ ? numerators.back() : masses.back().sums.log;
    off = std::nextafter(off, 1e9);
  }

 private:
  OffRows(const Stream& stream, LogitBlock block, bool numerators)
      : ResidentRows(block.max_logit),
        stream_(stream),
        block_(std::move(block)),
        numerators_(numerators) {}
  static LogitBlock block_of(const Stream& stream, const std::vector<Index>& rows) {
    LogitBlock block;
    cpu_kernels().logits(stream, rows, block);
    return block;
  }

  const Stream& stream_;
  const LogitBlock block_;
  const bool numerators_;
};

// The CPU's kernels, one of which is off by the least.
class OneOff final : public WrappedKernels {
 public:
  explicit OneOff(std::string which) : WrappedKernels(cpu_kernels()), which_(std::move(which)) {}

  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override {
    ExactRows out = cpu_kernels().exact_attention(stream, std::move(rows));
    if (which_ == "exact attention") out.outputs.back() += 1e-8;
    return out;
  }
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override {
    cpu_kernels().logits(stream, std::move(rows), out);
    if (which_ == "logits") out.logits.back() = std::nextafter(out.logits.back(), 1e9);
  }
  std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const override {
    if (which_ != "answers of resident rows" && which_ != "masses of resident rows") return nullptr;
    return std::make_shared<OffRows>(stream, rows, which_ == "answers of resident rows");
  }
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override {
    auto out = cpu_kernels().score_sums_by(stream, first, last, rules);
    if (which_ == "score sums") out[0][1][7] = std::nextafter(out[0][1][7], 1e9);
    return out;
  }
  Clustering cluster(ConstMatrix points, Index first, double delta) const override {
    Clustering out = cpu_kernels().cluster(points, first, delta);
    if (which_ == "clusterings") ++out.assignment.back();
    return out;
  }
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override {
    Centers out = cpu_kernels().farthest_first(points, first, last, start, count);
    if (which_ == "centres") std::swap(out.tokens[3], out.tokens[4]);
    return out;
  }
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override {
    cpu_kernels().value_norms(stream, rows, spectral, frobenius);
    if (which_ == "value norms") spectral.back() *= 1.0 + 1e-8;
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const override {
    auto out = cpu_kernels().balance_walks(rule, matrices, uniforms);
    if (which_ == "walks by resident matrices") out.back().signs.back() *= -1;
    return out;
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const override {
    auto out = cpu_kernels().balance_walks(rule, tokens, uniforms);
    double& largest = out.back().max_abs_p_minus_half;
    if (which_ == "walks") largest = std::nextafter(largest, 1e9);
    return out;
  }
  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override {
    if (which_ == "answers") return std::make_unique<OffSums>(values);
    return cpu_kernels().weighted_values(values);
  }

 private:
  std::string which_;
};

TEST_CASE("right kernels pass") {
  CHECK(cuda::kernel_that_differs(cpu_kernels()).empty());
  CHECK(cuda::kernel_that_differs(KernelsOnHost()).empty());
}

TEST_CASE("a kernel that errs is named") {
  for (const KernelContract& contract : kernel_contracts()) {
    for (const char* which : contract.self_tests) {
      CHECK(cuda::kernel_that_differs(OneOff(which)) == which);
    }
  }
}

}  // namespace self_test_test
}  // namespace kvbench::test
