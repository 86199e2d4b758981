#include "bench/comparison_tasks.hpp"

#include <algorithm>
#include <any>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>

#include "algorithms/registry.hpp"
#include "bench/algorithm_cell.hpp"
#include "bench/floor.hpp"
#include "kernels/kernels.hpp"
#include "numerics/counter_rng.hpp"
#include "replay/replay.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kRows = 256;
constexpr Index kBlock = 256;
constexpr Index kCenters = 512;

std::vector<Index> last(const Stream& stream, Index count) {
  std::vector<Index> rows(count);
  std::iota(rows.begin(), rows.end(), stream.shape.tokens - count);
  return rows;
}

double pairs_of(const std::vector<Index>& rows) {
  double pairs = 0.0;
  for (const Index row : rows) pairs += static_cast<double>(row + 1);
  return pairs;
}

double sum_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double sum, double x) { return sum + std::abs(x); });
}

// A task of one call whose result is kept for its answers.
template <class Result>
Task task(const std::string& name, std::function<double()> floor, std::function<Result()> call,
          std::function<Answers(const Result&)> answers) {
  auto result = std::make_shared<Result>();
  return {name, std::move(floor), [result, call] { *result = call(); },
          [result, answers] { return answers(*result); }};
}

Task exact_task(const std::string& name, const Stream& stream, std::vector<Index> rows) {
  const auto pairs = static_cast<Index>(pairs_of(rows));
  return task<ExactRows>(
      name, [=, &stream] { return exact_attention_floor(pairs, stream.shape.d, stream.shape.dv); },
      [=, &stream] { return cpu_kernels().exact_attention(stream, rows); },
      [](const ExactRows& exact) { return Answers{{"outputs", sum_of(exact.outputs)}}; });
}

// Floor: the running sum of v v^T, which any way to the norms needs.
Task norms_task(const std::string& name, const Stream& stream, std::vector<Index> rows) {
  const auto dv = static_cast<double>(stream.shape.dv);
  const double flops = static_cast<double>(stream.shape.tokens) * dv * (dv + 1.0);
  return task<std::vector<double>>(
      name, [=] { return flops / machine_floor().fma_flops_all; },
      [=, &stream] {
        std::vector<double> spectral, frobenius;
        cpu_kernels().value_norms(stream, rows, spectral, frobenius);
        return spectral;
      },
      [](const std::vector<double>& norms) { return Answers{{"spectral", sum_of(norms)}}; });
}

// Floor: every token's distances to the clusters open at its time, as one matrix product.
Task clustering_task(const ComparisonStream& from) {
  const Stream& stream = from.head;
  const double delta = from.delta;
  auto once = std::make_shared<Clustering>();
  return {"clustering",
          [&stream, once] {
            double distances = 0.0;
            std::int32_t open = 0;
            for (const std::int32_t cluster : once->assignment) {
              distances += open;
              open = std::max(open, cluster + 1);
            }
            return distances * 2.0 * static_cast<double>(stream.shape.d) /
                   machine_floor().fma_flops_all;
          },
          [&stream, once, delta] { *once = cpu_kernels().cluster(stream.keys, 0, delta); },
          [once] { return Answers{{"clusters", static_cast<double>(once->opened_by.size())}}; }};
}

ReplaySetting last_rows_setting(const Stream& stream, Index prompt) {
  ReplaySetting setting;
  setting.prompt = prompt;
  setting.rows = last(stream, kRows);
  return setting;
}

double mean_error(const CellResult& cell) {
  return cell.metrics["errors.relative_l2.mean"].value();
}

// Whole replays of cells that differ in their seeds: reference, algorithm, answers, every metric.
Task subgen_task(const std::string& name, const ComparisonStream& from, std::uint32_t seeds) {
  const Stream& stream = from.head;
  const Given given = {
      {"delta", Value{from.delta}}, {"t", Value{std::int64_t{8}}}, {"s", Value{std::int64_t{256}}}};
  return task<CellResult>(
      name, [] { return 0.0; },
      [=, &stream] {
        const Params params = params_of(*find_algorithm("subgen"), given);
        return last_cell(stream, last_rows_setting(stream, stream.shape.tokens - kRows),
                         cells_of(*find_algorithm("subgen"), params, 0, seeds));
      },
      [](const CellResult& cell) {
        return Answers{{"clusters", static_cast<double>(cell.clusters->final_count)},
                       {"~error", mean_error(cell)}};
      });
}

// The whole of one halving in blocks: centred keys, kernel matrices, walks, selection. Floor: the
// matrices' products and exponentials, and one read of them for the walk.
Task walk_task(const Stream& stream) {
  const Index n = stream.shape.tokens;
  const double pairs = static_cast<double>(n / kBlock) * static_cast<double>(kBlock) *
                       static_cast<double>(kBlock - 1) / 2.0;
  const auto width = static_cast<double>(stream.shape.d + stream.shape.dv);
  const Given given = {{"T", Value{std::int64_t{1}}},
                       {"block", Value{std::int64_t{kBlock}}},
                       {"temperature", Value{0.1}},
                       {"sinks", Value{std::int64_t{0}}},
                       {"recent", Value{std::int64_t{0}}}};
  return task<double>(
      "walk",
      [=] {
        return pairs *
               (2.0 * width / machine_floor().fma_flops_all + 1.0 / machine_floor().exps_all +
                sizeof(double) / machine_floor().read_bytes_all);
      },
      [=, &stream] {
        const AlgorithmDescription& algorithm = *find_algorithm("balancekv_prefill");
        const Params params = params_of(algorithm, given);
        SharedResults shared;
        for (const SharedWork& work : algorithm.shared_work(params, stream.shape, n, 0)) {
          shared.add(work, SharedContext{stream, n, cpu_kernels()});
        }
        const auto running = algorithm.create(params, {stream, n, 0, cpu_kernels(), shared});
        running->extend(0, n);
        running->finish_prompt();
        return static_cast<double>(running->sketch().size());
      },
      [](const double& kept) { return Answers{{"kept", kept}}; });
}

// A pure stream: no prompt, a token dropped at every row. Floor: the logits of the held tokens.
Task h2o_task(const std::string& name, const Stream& stream, int cells) {
  const Index n = stream.shape.tokens;
  const auto count = static_cast<double>(n * kCenters);
  return task<CellResult>(
      name,
      [=, &stream] {
        return count * (2.0 * static_cast<double>(stream.shape.d) / machine_floor().fma_flops_all +
                        1.0 / machine_floor().exps_all);
      },
      [=, &stream] {
        const AlgorithmDescription& h2o = *find_algorithm("h2o");
        std::vector<ReplayCell> list;
        for (int c = 0; c < cells; ++c) {
          list.push_back(
              {&h2o, params_of(h2o, {{"budget", Value{std::int64_t{kCenters - c}}}}), 0});
        }
        std::reverse(list.begin(), list.end());
        return last_cell(stream, last_rows_setting(stream, 0), list);
      },
      [](const CellResult& cell) {
        return Answers{{"error", mean_error(cell)},
                       {"tokens", static_cast<double>(cell.memory.tokens)}};
      });
}

// Floor: logits and exponentials of every visible pair once; a block of rows at a time needs no
// more, with memory O(n).
Task score_task(const std::string& name, const Stream& stream, bool noisy) {
  const Index n = stream.shape.tokens;
  const double pairs = static_cast<double>(n) * static_cast<double>(n + 1) / 2.0;
  return task<std::vector<std::vector<double>>>(
      name,
      [=, &stream] {
        return pairs * (2.0 * static_cast<double>(stream.shape.d) / machine_floor().fma_flops_all +
                        1.0 / machine_floor().exps_all);
      },
      [=, &stream] {
        ScoreRule rule;
        if (noisy) {
          rule.noise = {LogitNoise::Kind::kGumbel, false,
                        CounterRng(0, stream.id.hash(), "keyformer/token").key()};
        }
        return cpu_kernels().score_sums(stream, 0, n, rule);
      },
      [=](const std::vector<std::vector<double>>& sums) {
        Answers answers{{"total", sum_of(sums[0])}};
        if (!noisy)
          answers.push_back({"largest", *std::max_element(sums[0].begin(), sums[0].end())});
        return answers;
      });
}

// Floor: the distances of all tokens to every centre.
Task center_task(const Stream& stream) {
  const Index n = stream.shape.tokens;
  return task<Centers>(
      "kcenter",
      [=, &stream] {
        return static_cast<double>(kCenters * n * stream.shape.d) * 2.0 /
               machine_floor().fma_flops_all;
      },
      [=, &stream] { return cpu_kernels().farthest_first(stream.keys, 0, n, 0, kCenters); },
      [](const Centers& centers) { return Answers{{"radius", centers.radius.back()}}; });
}

}  // namespace

std::vector<Task> comparison_tasks(const ComparisonStream& from) {
  const Stream& head = from.head;
  const Index n = head.shape.tokens;
  std::vector<Task> tasks = {exact_task("exact", head, last(head, n)),
                             exact_task("exact_last", head, last(head, kRows)),
                             norms_task("value_norms", head, last(head, n)),
                             norms_task("value_norms_last", head, last(head, kRows)),
                             clustering_task(from),
                             subgen_task("subgen_first", from, 1),
                             subgen_task("subgen_many", from, 1 + kFurtherSeeds),
                             walk_task(head),
                             h2o_task("h2o_first", head, 1),
                             h2o_task("h2o_two", head, 2),
                             score_task("scores", head, false),
                             score_task("scores_noisy", head, true),
                             center_task(head)};
  if (from.wide.shape.tokens > 0) {
    tasks.push_back(exact_task("exact_wide", from.wide, last(from.wide, n)));
  }
  return tasks;
}

}  // namespace kvbench::bench
