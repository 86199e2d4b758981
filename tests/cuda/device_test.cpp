// The kernels on a real device against the CPU's, case by case as on the CPU's own machine. Without
// a device this program says so and ends with 77, which ctest shows as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cuda/devices.hpp"
#include "cuda/self_test.hpp"
#include "registry_equality.hpp"
#include "support/kernel_contracts.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace {

const DeviceKernels& on_device() {
  static const auto kernels = cuda_kernels();
  return *kernels;
}

}  // namespace

TEST_CASE("every kernel on the device keeps its contract") {
  for (const KernelContract& contract : kernel_contracts()) {
    SUBCASE(contract.claim) { contract.check(on_device()); }
  }
}
TEST_CASE("every algorithm decides as on the CPU") { check_registry(on_device()); }
TEST_CASE("the check before use passes") {
  CHECK(cuda::kernel_that_differs(on_device()) == "");
  CHECK(on_device().error() == "");
}

// So many that several threads of the host take them in batches.
TEST_CASE("exact attention of 32768 queries on a resident stream is the CPU's") {
  for (const Index d : {63, 64, 128}) {
    const auto owned = make_stream({.tokens = 4096, .d = d, .dv = d, .heads_per_kv = 8});
    std::vector<Index> rows(4096);
    std::iota(rows.begin(), rows.end(), 0);
    const auto resident = on_device().make_resident(owned->stream);
    check_exact_attention(on_device(), owned->stream, rows);
  }
}

TEST_CASE("calls of several threads do not disturb each other") {
  const auto owned = make_stream({.tokens = 1500, .d = 64, .dv = 64, .heads_per_kv = 2});
  const Clustering alone = on_device().cluster(owned->stream.keys, 0, 9.0);
  const ScoreRule rule;
  const auto sums = on_device().score_sums(owned->stream, 0, 1500, rule);
  std::atomic<int> right = 0;
  const auto call = [&](bool clusters) {
    for (int i = 0; i < 5; ++i) {
      right += clusters
                   ? on_device().cluster(owned->stream.keys, 0, 9.0).assignment == alone.assignment
                   : on_device().score_sums(owned->stream, 0, 1500, rule) == sums;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) threads.emplace_back(call, t % 2 == 0);
  }
  CHECK(right.load() == 40);
}

}  // namespace kvbench::test

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  if (const kvbench::CudaDevices found = kvbench::cuda_devices(); found.devices.empty()) {
    std::printf("skipped: no CUDA device: %s\n", found.reason.c_str());
    return kSkipped;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
