// The kernel table with the bodies and host logic of cuda/, run on the CPU by HostMachine.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/balance_walk.hpp"
#include "cuda/kernels/cluster.hpp"
#include "cuda/kernels/exact_attention.hpp"
#include "cuda/kernels/farthest_first.hpp"
#include "cuda/kernels/logits.hpp"
#include "cuda/kernels/resident_rows.hpp"
#include "cuda/kernels/score_sums.hpp"
#include "cuda/kernels/value_norms.hpp"
#include "cuda/kernels/weighted_values.hpp"
#include "host_machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::test {

class KernelsOnHost final : public Kernels {
 public:
  // A make-believe device with that much memory; every call runs in another order.
  explicit KernelsOnHost(Index memory_bytes = Index{1} << 30)
      : KernelsOnHost(memory_bytes, memory_bytes / 4) {}
  // So much of it for what outlives a call, besides the memory of calls.
  KernelsOnHost(Index memory_bytes, Index resident_bytes) : ledger_(memory_bytes, resident_bytes) {}

  std::string device() const override { return "host"; }
  std::shared_ptr<const void> make_resident(const Stream& stream) const override {
    HostMachine machine = call();
    return cuda::make_resident(machine, stream);
  }
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override {
    return cuda::exact_attention([this] { return call(); }, stream, std::move(rows), attention);
  }
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override {
    ++logit_calls_;
    HostMachine machine = call();
    cuda::logits(machine, stream, std::move(rows), out);
  }
  std::shared_ptr<const ResidentRows> make_rows_resident(
      const Stream& stream, const std::vector<Index>& rows) const override {
    return cuda::make_rows_resident([this] { return call(); }, stream, rows);
  }
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override {
    HostMachine machine = call();
    return cuda::score_sums(machine, stream, first, last, rules);
  }
  Clustering cluster(ConstMatrix points, Index first, double delta) const override {
    HostMachine machine = call();
    return cuda::cluster(machine, points, first, delta);
  }
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override {
    HostMachine machine = call();
    return cuda::farthest_first(machine, points, first, last, start, count);
  }
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override {
    HostMachine machine = call();
    cuda::value_norms(machine, stream, rows, spectral, frobenius);
  }
  std::shared_ptr<const WalkMatrices> walk_matrices(const std::vector<Index>& sizes,
                                                    const WalkSource& tokens) const override {
    HostMachine machine = call();
    return cuda::walk_matrices(machine, sizes, tokens);
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkMatrices& matrices,
      const std::vector<std::vector<double>>& uniforms) const override {
    HostMachine machine = call();
    return cuda::balance_walks(machine, rule, matrices, uniforms);
  }
  std::vector<WalkResult> balance_walks(
      const WalkRule& rule, const WalkSource& tokens,
      const std::vector<std::vector<double>>& uniforms) const override {
    HostMachine machine = call();
    return cuda::balance_walks(machine, rule, tokens, uniforms);
  }

  std::unique_ptr<WeightedValues> weighted_values(ConstMatrix values) const override {
    const auto make = [this] { return call(); };
    return std::make_unique<cuda::DeviceWeightedValues<decltype(make)>>(values, make);
  }

  cuda::AttentionSplit attention;

  Index resident_bytes() const { return ledger_.resident_bytes(); }
  int logit_calls() const { return logit_calls_; }  // logits that were brought to the host

 private:
  HostMachine call() const { return HostMachine(ledger_, ++calls_, &copies_); }

  mutable cuda::MemoryLedger ledger_;
  mutable cuda::ResidentCopies copies_;
  mutable std::atomic<std::uint64_t> calls_ = 0;
  mutable std::atomic<int> logit_calls_ = 0;
};

}  // namespace kvbench::test
