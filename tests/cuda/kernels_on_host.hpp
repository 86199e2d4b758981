// The kernel table with the bodies and host logic of cuda/, run on the CPU by HostMachine.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/cluster.hpp"
#include "cuda/kernels/exact_attention.hpp"
#include "cuda/kernels/farthest_first.hpp"
#include "cuda/kernels/logits.hpp"
#include "cuda/kernels/score_sums.hpp"
#include "cuda/kernels/value_norms.hpp"
#include "host_machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::test {

class KernelsOnHost final : public Kernels {
 public:
  // A make-believe device with that much memory; every call runs in another order.
  explicit KernelsOnHost(Index memory_bytes = Index{1} << 30) : ledger_(memory_bytes) {}

  std::string device() const override { return "host"; }
  ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) const override {
    HostMachine machine(ledger_, ++calls_);
    return cuda::exact_attention(machine, stream, std::move(rows));
  }
  void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const override {
    HostMachine machine(ledger_, ++calls_);
    cuda::logits(machine, stream, std::move(rows), out);
  }
  std::vector<ScoreSums> score_sums_by(const Stream& stream, Index first, Index last,
                                       const std::vector<ScoreRule>& rules) const override {
    HostMachine machine(ledger_, ++calls_);
    return cuda::score_sums(machine, stream, first, last, rules);
  }
  Clustering cluster(ConstMatrix points, Index first, double delta) const override {
    HostMachine machine(ledger_, ++calls_);
    return cuda::cluster(machine, points, first, delta);
  }
  Centers farthest_first(ConstMatrix points, Index first, Index last, Index start,
                         Index count) const override {
    HostMachine machine(ledger_, ++calls_);
    return cuda::farthest_first(machine, points, first, last, start, count);
  }
  void value_norms(const Stream& stream, const std::vector<Index>& rows,
                   std::vector<double>& spectral, std::vector<double>& frobenius) const override {
    HostMachine machine(ledger_, ++calls_);
    cuda::value_norms(machine, stream, rows, spectral, frobenius);
  }

 private:
  mutable cuda::MemoryLedger ledger_;
  mutable std::atomic<std::uint64_t> calls_ = 0;
};

}  // namespace kvbench::test
