// A kernel table around another one: what tests and benchmarks that watch or alter single calls
// start from, so that a new kernel is forwarded in one place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::test {

class WrappedKernels : public Kernels {
 public:
  // `kernels` must outlive this and all that its calls return.
  explicit WrappedKernels(const Kernels& kernels) : kernels_(kernels) {}

  std::string device() const override { return kernels_.device(); }
  std::shared_ptr<const void> make_resident(const Stream& stream) const override {
    return pass("hold", [&] { return kernels_.make_resident(stream); });
  }
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override {
    return pass("exact_attention",
                [&] { return kernels_.exact_attention(stream, std::move(rows)); });
  }
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override {
    around("logits", [&] { kernels_.logits(stream, std::move(rows), out); });
  }
  std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const override {
    return pass("hold_rows", [&] { return kernels_.make_rows_resident(stream, rows); });
  }
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override {
    return pass("score_sums_by",
                [&] { return kernels_.score_sums_by(stream, first, last, rules); });
  }
  Clustering cluster(ConstMatrix points, Index first, double delta) const override {
    return pass("cluster", [&] { return kernels_.cluster(points, first, delta); });
  }
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override {
    return pass("farthest_first",
                [&] { return kernels_.farthest_first(points, first, last, start, count); });
  }
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override {
    around("value_norms", [&] { kernels_.value_norms(stream, rows, spectral, frobenius); });
  }
  std::shared_ptr<const WalkMatrices> walk_matrices(const std::vector<Index>& sizes,
                                                    const WalkSource& tokens) const override {
    return pass("walk_matrices", [&] { return kernels_.walk_matrices(sizes, tokens); });
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const override {
    return pass("balance_walks, held",
                [&] { return kernels_.balance_walks(rule, matrices, uniforms); });
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const override {
    return pass("balance_walks, tokens",
                [&] { return kernels_.balance_walks(rule, tokens, uniforms); });
  }
  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override {
    return pass("weighted_values", [&] { return kernels_.weighted_values(values); });
  }

 protected:
  // Makes the call `name`.
  virtual void around(const char*, const std::function<void()>& call) const { call(); }

 private:
  template <class Call>
  std::invoke_result_t<Call> pass(const char* name, const Call& call) const {
    std::invoke_result_t<Call> result;
    around(name, [&] { result = call(); });
    return result;
  }

  const Kernels& kernels_;
};

}  // namespace kvbench::test
