// The kernel table on a CUDA device. Plain C++: callers need no CUDA header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench {

// Calls of several threads run side by side, each on a CUDA stream of its own; what they allocate
// is reserved before. A call that does not fit works on fewer rows at a time. Throws CellError
// if not even one row fits, DeviceError once the device failed.
class CudaKernels final : public Kernels {
 public:
  // Throws InputError with the reason if the machine has no device `index` that works.
  explicit CudaKernels(int index = 0);
  ~CudaKernels() override;

  std::string device() const override { return "cuda"; }
  std::string name() const;   // "NVIDIA H200"
  std::string fault() const;  // why the device failed; empty while it works

  std::shared_ptr<const void> hold(const Stream& stream) const override;
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override;
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override;
  std::shared_ptr<const HeldRows> hold_rows(const Stream& stream,
                                            const std::vector<Index>& rows) const override;
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override;
  Clustering cluster(ConstMatrix points, Index first, double delta) const override;
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override;
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override;
  std::shared_ptr<const WalkMatrices> walk_matrices(const std::vector<Index>& sizes,
                                                    const WalkSource& tokens) const override;
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const override;
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const override;
  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override;

  class Device;

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace kvbench
