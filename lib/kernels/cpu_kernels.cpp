// The kernel table's CPU side.
#include "kernels/balance_walk.hpp"
#include "kernels/cluster.hpp"
#include "kernels/exact_attention.hpp"
#include "kernels/farthest_first.hpp"
#include "kernels/kernels.hpp"
#include "kernels/logits.hpp"
#include "kernels/score_sums.hpp"
#include "kernels/value_norms.hpp"

namespace kvbench {
namespace {

class CpuKernels final : public Kernels {
 public:
  std::string device() const override { return "cpu"; }
  std::shared_ptr<const void> hold(const Stream&) const override { return nullptr; }
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override {
    return cpu::exact_attention(stream, std::move(rows));
  }
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override {
    cpu::logits(stream, std::move(rows), out);
  }
  std::shared_ptr<const HeldRows> hold_rows(const Stream&,
                                            const std::vector<Index>&) const override {
    return nullptr;
  }
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override {
    return cpu::score_sums(stream, first, last, rules);
  }
  Clustering cluster(ConstMatrix points, Index first, double delta) const override {
    return cpu::cluster(points, first, delta);
  }
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override {
    return cpu::farthest_first(points, first, last, start, count);
  }
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override {
    cpu::value_norms(stream, rows, spectral, frobenius);
  }
  std::shared_ptr<const WalkMatrices> walk_matrices(const std::vector<Index>& sizes,
                                                    const WalkSource& tokens) const override {
    return cpu::walk_matrices(sizes, tokens);
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const override {
    return cpu::balance_walks(rule, matrices, uniforms);
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const override {
    return cpu::balance_walks(rule, tokens, uniforms);
  }
  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override {
    return cpu::weighted_values(values);
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace kvbench
