// The bodies and the host logic of cuda/, run on the CPU, against the CPU's kernels.
#include "kernels_on_host.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "registry_equality.hpp"
#include "replay/replay.hpp"
#include "support/kernel_contracts.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"
#include "system/error.hpp"

namespace kvbench::test {

// The order in which threads and blocks run is another one in every call.
TEST_CASE("every kernel on the executor keeps its contract") {
  for (const KernelContract& contract : kernel_contracts()) {
    SUBCASE(contract.claim) { contract.check(KernelsOnHost()); }
  }
}
TEST_CASE("every algorithm decides as with the CPU's kernels") {
  check_registry(KernelsOnHost());
  // Room to hold some rows and the matrix of one walk, not of two; no room at all.
  check_registry(KernelsOnHost(Index{1} << 30, Index{150} << 10));
  check_registry(KernelsOnHost(Index{1} << 30, 0));
}

TEST_CASE("logits stay on the device unless a cell wants them on the host") {
  const auto calls = [](const StreamSpec& spec, const char* id,
                        const std::vector<std::pair<std::string, Value>>& given) {
    const auto owned = make_stream(spec);
    const AlgorithmDescription& algorithm = *find_algorithm(id);
    const KernelsOnHost kernels;
    ReplaySetting setting;
    setting.prompt = 60;
    setting.rows = decode_rows(owned->stream, 60);
    const ReplayCell cell{&algorithm, params_for(algorithm, given), 1};
    replay(owned->stream, setting, {cell, cell}, kernels,
           [](std::size_t, const CellResult& result) { CHECK(result.reason == ""); });
    return kernels.logit_calls();
  };
  const StreamSpec plain{.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2};
  const std::pair<std::string, Value> budget{"budget", std::int64_t{8}};
  CHECK(calls(plain, "window", {budget}) == 0);
  CHECK(calls(plain, "uniform", {budget}) == 0);
  CHECK(calls(plain, "snapkv", {budget}) == 0);
  CHECK(calls(plain, "balancekv", {{"t", std::int64_t{8}}, {"T", std::int64_t{1}}}) == 0);
  // It scores by them.
  CHECK(calls(plain, "oracle_topk", {budget}) == 1);
  // Keys turned to other positions have logits of their own, and the exact ones next to them.
  CHECK(calls(plain, "streaming_llm", {budget, {"positions", std::string("cache")}}) == 1);
  // A window below the row's largest logit is answered under a shift of its own.
  const StreamSpec huge{.tokens = 90, .d = 3, .dv = 3, .query_size = 200};
  CHECK(calls(huge, "window", {budget}) == 1);
}

namespace kernels_on_host_test {

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

TEST_CASE("calls on a stream that is held need no room for its keys and values") {
  const auto owned = make_stream({.tokens = 2000, .d = 64, .dv = 64});  // 1 MB each
  const KernelsOnHost kernels(Index{500} << 10, Index{3} << 20);
  CHECK_THROWS_AS(kernels.exact_attention(owned->stream, {1000, 1999}), CellError);
  CHECK(kernels.resident_bytes() == 0);
  {
    const auto resident = kernels.make_resident(owned->stream);
    CHECK(kernels.resident_bytes() == 2 * 2000 * 64 * 8);
    CHECK(kernels.exact_attention(owned->stream, {1000, 1999}).rows.size() == 2);
    const auto keys_alone = kernels.make_resident(owned->stream);
    CHECK(kernels.resident_bytes() == 3 * 2000 * 64 * 8);
    CHECK(kernels.exact_attention(owned->stream, {1000, 1999}).rows.size() == 2);
  }
  CHECK(kernels.resident_bytes() == 0);
  CHECK_THROWS_AS(kernels.exact_attention(owned->stream, {1000, 1999}), CellError);
  CHECK(KernelsOnHost(Index{1} << 20, 0).make_resident(owned->stream) == nullptr);
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

TEST_CASE("exact attention in batches of several threads is the CPU's, whatever the batches") {
  // Numbers in pairs or not; machines with much shared memory and with little take turns.
  for (const auto& [window, d] : std::vector<std::pair<Index, Index>>{{0, 9}, {150, 10}, {0, 70}}) {
    const auto owned =
        make_stream({.tokens = 400, .d = d, .dv = 70, .heads_per_kv = 2, .window = window});
    const Stream& stream = owned->stream;
    std::vector<Index> rows;
    for (Index i = 100; i < 400; ++i) rows.push_back(i);
    const ExactRows cpu = cpu_kernels().exact_attention(stream, rows);
    ExactRows first;
    for (const auto& [batch, workers] :
         std::vector<std::pair<Index, Index>>{{1000, 1}, {70, 3}, {14, 6}, {1, 2}}) {
      KernelsOnHost kernels;
      kernels.attention = {
          .many_queries = 600, .many_span = 128, .batch_queries = batch, .workers = workers};
      const auto resident = kernels.make_resident(stream);
      REQUIRE(resident != nullptr);
      const ExactRows batched = kernels.exact_attention(stream, rows);
      REQUIRE(batched.outputs.size() == cpu.outputs.size());
      double worst = 0.0;
      for (std::size_t i = 0; i < cpu.outputs.size(); ++i) {
        worst = std::max(worst, std::fabs(batched.outputs[i] - cpu.outputs[i]));
      }
      for (std::size_t i = 0; i < cpu.normalizer.size(); ++i) {
        worst = std::max(worst, std::fabs(batched.normalizer[i] / cpu.normalizer[i] - 1.0));
        worst = std::max(worst, std::fabs(batched.max_logit[i] - cpu.max_logit[i]));
        worst = std::max(worst, std::fabs(batched.squared_sum[i] / cpu.squared_sum[i] - 1.0));
      }
      CHECK(worst < 1e-9);
      if (first.outputs.empty()) first = batched;
      CHECK(batched.outputs == first.outputs);
      CHECK(batched.normalizer == first.normalizer);
    }
  }
}

TEST_CASE("a device that holds few rows at a time gives the same bits") {
  for (const Index window : {0, 90}) {
    const auto owned = make_stream(
        {.tokens = 400, .d = 9, .dv = 70, .heads_per_kv = 2, .window = window, .softcap = 25.0});
    const Stream& stream = owned->stream;
    std::vector<Index> rows;
    for (Index i = 250; i < 400; ++i) rows.push_back(i);
    check_little_memory([&](const Kernels& kernels) -> std::vector<std::vector<double>> {
      const ExactRows exact = kernels.exact_attention(stream, rows);
      return {{exact.outputs.begin(), exact.outputs.end()},
              exact.max_logit,
              exact.normalizer,
              exact.squared_sum};
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
      const auto resident = kernels.make_rows_resident(stream, rows);
      if (!resident) throw CellError("no room to hold rows for a single row");
      AnswerBatch batch;
      for (Index r = 0; r < 150; r += 3) {
        const auto first = std::ssize(batch.weights);
        const auto row = static_cast<std::int32_t>(rows[r]);
        batch.weights.push_back({0.5, 0.25, 0.125, row - 2, 1});
        batch.weights.push_back({1.5, 1.25, 1.125, row, 0});
        batch.questions.insert(batch.questions.end(), {{2 * r, first, 2}, {2 * r + 1, first, 2}});
      }
      std::vector<double> numerators;
      std::vector<AnswerMasses> masses;
      resident->answer(batch, numerators, masses);
      std::vector<double> numbers = resident->max_logit();
      for (const AnswerMasses& mass : masses) {
        numbers.insert(numbers.end(), {mass.sums.num, mass.sums.den, mass.sums.log, mass.sums.kept,
                                       mass.largest_den});
      }
      return {numerators, numbers};
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

}  // namespace kernels_on_host_test
}  // namespace kvbench::test
