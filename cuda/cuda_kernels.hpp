// The kernel table on a CUDA device, from the inside; callers have cuda/devices.hpp. Each kernel is
// defined in the .cu of its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/devices.hpp"

namespace kvbench {

class CudaKernels final : public DeviceKernels {
 public:
  explicit CudaKernels(int index);
  ~CudaKernels() override;

  std::string device() const override { return "cuda"; }
  std::string name() const override;
  std::string error() const override;

  std::shared_ptr<const void> make_resident(const Stream& stream) const override;
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override;
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override;
  std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const override;
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
