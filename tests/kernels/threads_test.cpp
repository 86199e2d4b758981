// Bits do not depend on the number of threads.
#include "support/threads.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <functional>

#include "kernels/kernels.hpp"
#include "support/kernel_contracts.hpp"
#include "support/owned_stream.hpp"
#include "support/wrapped_kernels.hpp"

namespace kvbench::test {
namespace threads_test {

// Runs `compute` on 1, 2 and 4 threads and compares the bits of what it returns.
void check_equal_bits(const std::function<std::vector<std::vector<double>>()>& compute) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto alone = compute();
  for (const int threads : {2, 4}) {
    omp_set_num_threads(threads);
    CHECK(compute() == alone);
  }
  omp_set_num_threads(before);
}

// The CPU's kernels on three threads.
class OnThreeThreads final : public WrappedKernels {
 public:
  OnThreeThreads() : WrappedKernels(cpu_kernels()) {}

 private:
  void around(const char*, const std::function<void()>& call) const override {
    const Threads three(3);
    call();
  }
};

std::vector<double> as_double(const auto& values) { return {values.begin(), values.end()}; }

TEST_CASE("every kernel gives the same bits on 1, 2 and 4 threads") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 597, .d = 43, .dv = 41, .heads_per_kv = 3},
      {.tokens = 1100, .d = 16, .dv = 24, .heads_per_kv = 2, .window = 200, .softcap = 20.0}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    const Index n = spec.tokens;
    std::vector<Index> rows;
    for (Index i = n / 2; i < n; i += 3) rows.push_back(i);
    check_equal_bits([&]() -> std::vector<std::vector<double>> {
      const ExactRows exact = cpu_kernels().exact_attention(stream, rows);
      return {{exact.outputs.begin(), exact.outputs.end()},
              exact.max_logit,
              exact.normalizer,
              exact.squared_sum};
    });
    check_equal_bits([&]() -> std::vector<std::vector<double>> {
      LogitBlock block;
      cpu_kernels().logits(stream, {n - 2, n - 1}, block);
      std::vector<double> visible;
      for (Index line = 0; line < 2 * stream.shape.heads_per_kv; ++line) {
        const Index row = block.rows[line / stream.shape.heads_per_kv];
        for (Index j = stream.shape.first_visible(row); j <= row; ++j) {
          visible.push_back(block.logits[line * block.tokens + j]);
          visible.push_back(block.exps[line * block.tokens + j]);
        }
      }
      return {visible, block.max_logit};
    });
    check_equal_bits([&] { return cpu_kernels().score_sums(stream, 0, n - n / 3); });
    check_equal_bits([&]() -> std::vector<std::vector<double>> {
      std::vector<double> spectral;
      std::vector<double> frobenius;
      cpu_kernels().value_norms(stream, rows, spectral, frobenius);
      return {spectral, frobenius};
    });
    check_equal_bits([&]() -> std::vector<std::vector<double>> {
      const Centers centers = cpu_kernels().farthest_first(stream.keys, 3, n, 5, 60);
      return {as_double(centers.tokens), centers.radius, as_double(centers.nearest)};
    });
    check_equal_bits([&]() -> std::vector<std::vector<double>> {
      const Clustering clustering = cpu_kernels().cluster(stream.keys, 0, 5.0);
      return {as_double(clustering.assignment), as_double(clustering.opened_by)};
    });
  }
}

TEST_CASE("every kernel on three threads keeps its contract with one thread") {
  const Threads one(1);
  for (const KernelContract& contract : kernel_contracts()) {
    if (contract.needs_resident_rows) continue;
    SUBCASE(contract.claim) { contract.check(OnThreeThreads()); }
  }
}

}  // namespace threads_test
}  // namespace kvbench::test
