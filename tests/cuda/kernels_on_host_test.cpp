// The bodies and the host logic of cuda/, run on the CPU, against the CPU's kernels.
#include "kernels_on_host.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "equality.hpp"
#include "registry_equality.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {

TEST_CASE("exact attention is the CPU's within 1e-9") { check_exact_attention(KernelsOnHost()); }
TEST_CASE("logits are the CPU's bit by bit") { check_logits(KernelsOnHost()); }
TEST_CASE("score sums are the CPU's bit by bit") { check_score_sums(KernelsOnHost()); }
TEST_CASE("clusterings are the CPU's") { check_clusters(KernelsOnHost()); }
TEST_CASE("centres are the CPU's") { check_centers(KernelsOnHost()); }
TEST_CASE("value norms are the CPU's within 1e-9") { check_value_norms(KernelsOnHost()); }
TEST_CASE("walks are the CPU's bit by bit") { check_walks(KernelsOnHost()); }
TEST_CASE("no bit depends on the order in which threads and blocks run") {
  check_determinism(KernelsOnHost());
}
TEST_CASE("every algorithm decides as with the CPU's kernels") { check_registry(KernelsOnHost()); }

namespace {

// The results of `compute` on the smallest device that holds one row, with all bits of those on one
// that holds everything.
template <class Compute>
void check_little_memory(const Compute& compute) {
  const std::vector<std::vector<double>> plenty = compute(KernelsOnHost());
  int refused = 0;
  std::vector<std::vector<double>> little;
  for (Index bytes = 1024; little.empty(); bytes += bytes / 64) {
    try {
      little = compute(KernelsOnHost(bytes));
    } catch (const CellError& error) {
      ++refused;
      CHECK(std::string(error.what()).find("for a single row") != std::string::npos);
    }
  }
  CHECK((little == plenty));
  CHECK(refused > 0);
}

}  // namespace

TEST_CASE("a device that holds few rows at a time gives the same bits") {
  for (const Index window : {0, 90}) {
    const auto owned = make_stream(
        {.tokens = 400, .d = 9, .dv = 70, .group = 2, .window = window, .softcap = 25.0});
    const Stream& stream = owned->stream;
    std::vector<Index> rows;
    for (Index i = 250; i < 400; ++i) rows.push_back(i);
    check_little_memory([&](const Kernels& kernels) -> std::vector<std::vector<double>> {
      const ExactRows exact = kernels.exact_attention(stream, rows);
      return {exact.outputs, exact.max_logit, exact.normalizer, exact.squared_sum};
    });
    check_little_memory([&](const Kernels& kernels) -> std::vector<std::vector<double>> {
      LogitBlock block;
      kernels.logits(stream, rows, block);
      return {block.logits, block.exps, block.max_logit};
    });
    check_little_memory([&](const Kernels& kernels) {
      return kernels.score_sums(stream, 20, 390, {.noise = {}, .decay = 0.9, .gain = 0.3});
    });
    check_little_memory([&](const Kernels& kernels) -> std::vector<std::vector<double>> {
      std::vector<double> spectral;
      std::vector<double> frobenius;
      kernels.value_norms(stream, rows, spectral, frobenius);
      return {spectral, frobenius};
    });
  }
}

}  // namespace kvbench::test
