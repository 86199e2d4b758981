// The kernels on a real device against the CPU's, case by case as on the CPU's own machine. Without
// a device this program says so and ends with 77, which ctest shows as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_kernels.hpp"
#include "cuda/devices.hpp"
#include "cuda/self_test.hpp"
#include "equality.hpp"
#include "registry_equality.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace {

const CudaKernels& on_device() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace

TEST_CASE("exact attention is the CPU's within 1e-9") { check_exact_attention(on_device()); }
TEST_CASE("logits are the CPU's bit by bit") { check_logits(on_device()); }
TEST_CASE("answers of held rows are those by the CPU's logits, bit by bit") {
  check_held_rows(on_device());
}
TEST_CASE("score sums are the CPU's bit by bit") { check_score_sums(on_device()); }
TEST_CASE("clusterings are the CPU's") { check_clusters(on_device()); }
TEST_CASE("centres are the CPU's") { check_centers(on_device()); }
TEST_CASE("value norms are the CPU's within 1e-9") { check_value_norms(on_device()); }
TEST_CASE("walks are the CPU's bit by bit") { check_walks(on_device()); }
TEST_CASE("weighted sums of values are the CPU's bit by bit") {
  check_weighted_values(on_device());
}
TEST_CASE("a stream that is held gives what it gives without, and none is served stale") {
  check_held_streams(on_device());
}
TEST_CASE("two calls give the same bits") { check_determinism(on_device()); }
TEST_CASE("every algorithm decides as on the CPU") { check_registry(on_device()); }
TEST_CASE("the check before use passes") {
  CHECK(cuda::kernel_that_differs(on_device()) == "");
  CHECK(on_device().fault() == "");
}

TEST_CASE("calls of several threads do not disturb each other") {
  const auto owned = make_stream({.tokens = 1500, .d = 64, .dv = 64, .group = 2});
  const Clustering alone = on_device().cluster(owned->stream.keys, 0, 9.0);
  const ScoreRule rule;
  const auto sums = on_device().score_sums(owned->stream, 0, 1500, rule);
  std::vector<std::thread> threads;
  std::vector<int> right(8, 0);
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const bool same = t % 2 == 0 ? on_device().cluster(owned->stream.keys, 0, 9.0).assignment ==
                                           alone.assignment
                                     : on_device().score_sums(owned->stream, 0, 1500, rule) == sums;
        right[t] += same;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(8, 5));
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
