// The bodies and the host logic of cuda/, run on the CPU, against the CPU's kernels.
#include "kernels_on_host.hpp"

#include <doctest/doctest.h>

#include <numeric>
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
TEST_CASE("weighted sums of values are the CPU's bit by bit") {
  check_weighted_values(KernelsOnHost());
}
TEST_CASE("a stream that is held gives what it gives without, and none is served stale") {
  check_held_streams(KernelsOnHost());
}
TEST_CASE("no bit depends on the order in which threads and blocks run") {
  check_determinism(KernelsOnHost());
}
TEST_CASE("every algorithm decides as with the CPU's kernels") {
  // Room to hold the matrix of one walk, not of two: some are held, others are not.
  check_registry(KernelsOnHost(Index{1} << 30, Index{150} << 10));
}

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

TEST_CASE("calls on a stream that is held need no room for its keys and values") {
  const auto owned = make_stream({.tokens = 2000, .d = 64, .dv = 64});  // 1 MB each
  const KernelsOnHost kernels(Index{500} << 10, Index{3} << 20);
  CHECK_THROWS_AS(kernels.exact_attention(owned->stream, {1000, 1999}), CellError);
  CHECK(kernels.held_bytes() == 0);
  {
    const auto held = kernels.hold(owned->stream);
    CHECK(kernels.held_bytes() == 2 * 2000 * 64 * 8);
    CHECK(kernels.exact_attention(owned->stream, {1000, 1999}).rows.size() == 2);
    const auto keys_alone = kernels.hold(owned->stream);
    CHECK(kernels.held_bytes() == 3 * 2000 * 64 * 8);
    CHECK(kernels.exact_attention(owned->stream, {1000, 1999}).rows.size() == 2);
  }
  CHECK(kernels.held_bytes() == 0);
  CHECK_THROWS_AS(kernels.exact_attention(owned->stream, {1000, 1999}), CellError);
  CHECK(KernelsOnHost(Index{1} << 20, 0).hold(owned->stream) == nullptr);
}

TEST_CASE("walks whose matrices find no room are walked without") {
  const KernelsOnHost kernels(Index{3} << 20, 0);
  check_walks(kernels);
  const auto owned = make_stream({.tokens = 100, .d = 4, .dv = 4});
  const auto matrices = kernels.walk_matrices({100}, [&](Index) {
    std::vector<Index> tokens(100);
    std::iota(tokens.begin(), tokens.end(), 0);
    WalkTokens walk;
    walk.keys = Gathered(owned->stream.keys, tokens);
    return walk;
  });
  CHECK(matrices == nullptr);
}

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
      return {{block.logits.begin(), block.logits.end()},
              {block.exps.begin(), block.exps.end()},
              block.max_logit};
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
    check_little_memory([&](const Kernels& kernels) -> std::vector<std::vector<double>> {
      const auto weighted = kernels.weighted_values(stream.values);
      for (std::int32_t q = 0; q < 100; ++q) {
        std::fill_n(weighted->ask({q / 3, q / 3 + 3, q / 3 + 200}), 3, 0.1 * q);
      }
      std::vector<double> sums;
      weighted->sums(sums);
      return {sums};
    });
  }
}

}  // namespace kvbench::test
