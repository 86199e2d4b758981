#include "bench/method_cell.hpp"

#include <numeric>

#include "bench/floor.hpp"
#include "replay/replay.hpp"
#include "replay/row_logits.hpp"
#include "replay/shared_work.hpp"
#include "sketch/estimator.hpp"
#include "system/error.hpp"

namespace kvbench::bench {
namespace {

// Adds what passes until it ends.
class Passing {
 public:
  explicit Passing(double& seconds) : seconds_(seconds) {}
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;
  ~Passing() { seconds_ += thread_seconds() - start_; }

 private:
  double& seconds_;
  const double start_ = thread_seconds();
};

std::vector<Index> last_rows(const Stream& stream, Index count) {
  std::vector<Index> rows(count);
  std::iota(rows.begin(), rows.end(), stream.shape.tokens - count);
  return rows;
}

SharedResults shared_results(const MethodRows& on, const AlgorithmDescription& algorithm,
                             const Params& params) {
  if (algorithm.replay_scope(params) == ReplayScope::kHead) {
    const SharedContext context = {on.stream, on.prompt, cpu_kernels(), &on.rows,
                                   &on.reference.value_spectral};
    const std::vector<ReplayCell> cells = {{&algorithm, params, 0}};
    SharedResults shared = compute_shared(context, cells);
    for (const auto& [cell, reason] : GatheredRows(context, cells).add(on.block, shared)) {
      throw CellError(reason);
    }
    return shared;
  }
  SharedResults results;
  const auto visit = [&](const std::function<void(const Stream&)>& see) { see(on.stream); };
  results.add(algorithm.model_work(params, 0),
              ModelContext{visit, on.prompt, on.stream.shape.tokens, cpu_kernels()});
  return results;
}

double own_keys_of(const Sketch& sketch) {
  double count = 0.0;
  for (const SketchRow& row : sketch.rows()) count += row.own_key >= 0 ? 1.0 : 0.0;
  return count;
}

}  // namespace

MethodRows::MethodRows(const Stream& of, Index count)
    : stream(of),
      prompt(of.shape.tokens - count),
      rows(last_rows(of, count)),
      reference(make_reference(cpu_kernels(), of, rows)),
      block(of, cpu_kernels(), rows, room) {
  block.logits();  // are there before a cell asks for them
}

MethodCell run_method(const MethodRows& on, const AlgorithmDescription& algorithm,
                      const Params& params) {
  const Stream& stream = on.stream;
  const int heads = stream.shape.heads_per_kv;
  const Needs needs = algorithm.needs(params);
  MethodCell cell;
  SharedResults shared;
  std::unique_ptr<Algorithm> running;
  {
    const Passing time(cell.decide_seconds);
    shared = shared_results(on, algorithm, params);
    running = algorithm.create(params, {stream, on.prompt, 0, cpu_kernels(), shared, &on.rows});
    running->extend(0, on.prompt);
    running->finish_prompt();
  }
  Estimator estimator(stream, cpu_kernels(), &on.block);
  const auto take = [](const Answer&) {};
  std::vector<char> is_read(stream.shape.tokens, 0);
  for (std::size_t r = 0; r < on.rows.size(); ++r) {
    const RowLogits logits = row_logits(stream, on.block.logits(), r);
    {
      const Passing time(cell.decide_seconds);
      running->extend(on.rows[r], on.rows[r] + 1);
      if (needs.row_logits) running->prepare(logits);
    }
    {
      const Passing time(cell.answer_seconds);
      estimator.set_sketch(running->sketch());
      for (int g = 0; g < heads; ++g) {
        const std::size_t query_index =
            r * static_cast<std::size_t>(heads) + static_cast<std::size_t>(g);
        const auto at = static_cast<Index>(query_index);
        estimator.enqueue(
            {on.rows[r], g, at, exact_of(on.reference.exact, at, stream.shape.dv), {}});
        cell.values_summed += static_cast<double>(estimator.values_summed(g));
      }
      if (estimator.should_flush()) estimator.flush(take);
    }
    cell.own_keys += heads * own_keys_of(running->sketch());
    for (const SketchRow& row : running->sketch().rows()) {
      if (row.token >= 0 && row.w_num != 0.0) is_read[row.token] = 1;
    }
    cell.kept = running->sketch().size();
    if (cell.kept == 0) throw CellError("a row is answered from no row of a sketch");
    const Passing time(cell.decide_seconds);
    if (needs.row_logits) running->answered(logits);
  }
  const Passing time(cell.answer_seconds);
  estimator.flush(take);
  cell.tokens_summed = std::accumulate(is_read.begin(), is_read.end(), Index{0});
  cell.clusters = running->clusters();
  return cell;
}

}  // namespace kvbench::bench
