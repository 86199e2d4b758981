#include "run/timed_sample.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "dump/rows_file.hpp"
#include "metrics/layer_outputs.hpp"
#include "metrics/metric_table.hpp"
#include "replay/kept_recorder.hpp"
#include "replay/replay.hpp"
#include "replay/visited_rows.hpp"
#include "results/record.hpp"
#include "run/cache_files.hpp"
#include "run/sample_rows.hpp"
#include "run/shared_pieces.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What an answer costs at most, per query head and visible token: only to choose how much of a
// long sequence is tried.
constexpr double kAnswerSeconds = 20e-9;
constexpr std::size_t kMinCells = 8;
// Cells whose outputs are projected at most: their number is proportional to the time.
constexpr std::size_t kProjected = 4;

class Sampler {
 public:
  Sampler(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
          const HeadCells& head)
      : plan_(plan),
        kernels_(kernels),
        group_(plan.groups[head.group]),
        head_(head),
        dump_(dumps[group_.dump]) {
    plan.cells.for_each_to_run(head.cells, [&](const PlannedCell& cell, std::size_t count) {
      every_row_ = every_row_ || visits_every_row(cell.index);
      pieces_.add(plan, group_, cell, count);
    });
    if (group_.hidden == 0) return;
    for (const std::size_t l : group_.layer_records) {
      for (const std::size_t c : plan.layer_records[l].cells) {
        const PlannedCell cell = plan.cells[c];
        if (cell.kv_head == head.kv_head && !cell.skip_reason) in_records_.insert(c);
      }
    }
  }

  TimedSample run(double budget) {
    auto start = Clock::now();
    std::unique_ptr<StreamData> data;
    try {
      data = dump_.read_stream(group_.sequence, group_.layer, head_.kv_head, group_.shape.tokens);
    } catch (const InputError&) {
      return {};
    } catch (const std::bad_alloc&) {
      return {};
    }
    read_seconds_ = seconds_from(start);
    rows_seconds_ = rows_seconds(budget);
    cut(data->stream, budget);
    start = Clock::now();
    const std::size_t few = std::min(kMinCells, head_.to_run);
    double seconds = time(data->stream, spread(few));
    const double per_cell = seconds_from(start) / static_cast<double>(few);
    const auto more = std::min(static_cast<std::size_t>(budget / per_cell), head_.to_run);
    if (more > 2 * few) seconds = time(data->stream, spread(more));
    return {seconds + rows_seconds_, cells_, projection_seconds_, rows_seconds_, scale_};
  }

 private:
  // Evenly spaced cells of those to run, the middle one of each stretch.
  std::vector<std::size_t> spread(std::size_t count) const {
    std::vector<std::size_t> chosen;
    std::size_t before = 0;  // cells to run in front of the setting's
    plan_.cells.for_each_to_run(head_.cells, [&](const PlannedCell& cell, std::size_t size) {
      while (chosen.size() < count) {
        const std::size_t next = (2 * chosen.size() + 1) * head_.to_run / (2 * count);
        if (next >= before + size) break;
        chosen.push_back(cell.index + (next - before));
      }
      before += size;
    });
    return chosen;
  }

  // Keeps only as many rows as the time budget allows.
  void cut(Stream& stream, double budget) {
    const double affordable =
        budget / (kAnswerSeconds * stream.shape.heads_per_kv * static_cast<double>(kMinCells));
    SampleRows sample =
        sample_rows(group_.shape, group_.prompt, group_.rows, every_row_, affordable);
    rows_ = std::move(sample.rows);
    stream.shape.tokens = sample.tokens;
    stream.keys.rows = sample.tokens;
    stream.values.rows = sample.tokens;
    for (ConstMatrix& query : stream.queries) {
      query.rows = sample.tokens - stream.shape.first_query;
    }
  }

  bool visits_every_row(std::size_t c) const {
    const PlannedCell cell = plan_.cells[c];
    return kvbench::visits_every_row(cell.algorithm->needs(*cell.params));
  }

  // Pairs of a visited row and a token in the whole replay, over those in the sample.
  double scale(const StreamShape& shape, bool every_row) const {
    return visited_pairs(group_.shape, group_.prompt, group_.rows, every_row) /
           visited_pairs(shape, group_.prompt, rows_, every_row);
  }

  double time(const Stream& stream, const std::vector<std::size_t>& chosen) {
    cells_ = chosen.size();
    double model_seconds = 0.0;
    std::map<WorkKey, std::unique_ptr<SharedResults>> model_results;
    std::vector<ReplayCell> replayed;
    for (const std::size_t c : chosen) {
      const PlannedCell& cell = plan_.cells[c];
      ReplayCell replay_cell{cell.algorithm, cell.params, cell.seed_or_zero(),
                             nullptr,        nullptr,     cell.storage};
      if (cell.scope) {
        replay_cell.model_results = decide(stream, cell, model_results, model_seconds);
      }
      replayed.push_back(replay_cell);
    }
    std::size_t written = 0;
    std::vector<CellOutputs> outputs;
    const auto done = [&](std::size_t index, CellResult&& result) {
      const bool is_projected =
          result.outputs && outputs.size() < kProjected && in_records_.count(chosen[index]) != 0;
      if (is_projected) outputs.push_back(std::move(*result.outputs));
      result.outputs.reset();
      // Into the journal and, from there, into results.json.
      const Json record = cell_record(plan_, plan_.cells[chosen[index]], result, "");
      written += to_line(Json::parse(to_line(record))).size();
    };
    const ReplaySetting setting{.prompt = group_.prompt,
                                .rows = rows_,
                                .element_bytes = plan_.element_bytes,
                                .keep_row_values = plan_.keep_rows,
                                .keep_outputs = !in_records_.empty()};
    std::vector<std::unique_ptr<KeptRecorder>> recorders;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!plan_.keep_caches || !has_cache_file(plan_.cells[chosen[i]])) continue;
      recorders.push_back(std::make_unique<KeptRecorder>(stream, setting, replayed[i]));
      replayed[i].watch = recorders.back().get();
    }
    const auto start = Clock::now();
    const ReplayTiming timing = replay(stream, setting, replayed, kernels_, done);
    const double cells_seconds =
        seconds_from(start) - timing.reference_seconds - timing.shared_seconds;
    const double share = static_cast<double>(head_.to_run) / static_cast<double>(cells_);
    SharedPieces pieces;
    for (const std::size_t c : chosen) pieces.add(plan_, group_, plan_.cells[c], 1);
    const double works = pieces_.count() / std::max(1.0, pieces.count());
    // What cells share is of all tokens, not of rows.
    const double tokens =
        static_cast<double>(group_.shape.tokens) / static_cast<double>(stream.shape.tokens);
    projection_seconds_ = projection_seconds(outputs);
    scale_ = scale(stream.shape, std::any_of(chosen.begin(), chosen.end(), [this](std::size_t c) {
                     return visits_every_row(c);
                   }));
    return read_seconds_ + timing.reference_seconds * scale(stream.shape, false) +
           (timing.shared_seconds + model_seconds) * works * tokens +
           cells_seconds * share * scale_ + projection_seconds_;
  }

  // Of all cells of the head; none of those that are timed below is written.
  double rows_seconds(double budget) const {
    if (!plan_.keep_rows) return 0.0;
    const double per_cell = seconds_per_cell_of_rows(row_columns(), group_.shape.heads_per_kv,
                                                     group_.rows.size(), budget / 8.0);
    return per_cell * static_cast<double>(head_.to_run);
  }

  // What this head adds to the records of the whole layer: its query heads' parts of W_O, each read
  // and multiplied with the exact outputs and the errors of every cell of a record.
  double projection_seconds(const std::vector<CellOutputs>& outputs) const {
    if (outputs.empty()) return 0.0;
    const Index dv = group_.shape.dv;
    const Index heads = group_.shape.heads_per_kv;
    const auto rows = static_cast<Index>(rows_.size());
    const auto first_head = [&](const std::vector<double>& of_all) -> ConstMatrix {
      return {of_all.data(), rows, dv, heads * dv};
    };
    try {
      LayerOutputs products(rows, 1, group_.hidden, outputs.size());
      std::vector<ConstMatrix> errors;
      for (const CellOutputs& each : outputs) errors.push_back(first_head(each.errors));
      auto start = Clock::now();
      const std::vector<double> weight =
          dump_.read_wo(group_.sequence, group_.layer, static_cast<int>(head_.kv_head * heads));
      const double read = seconds_from(start);
      start = Clock::now();
      products.add_head(0, {weight.data(), dv, group_.hidden}, first_head(*outputs.front().exact),
                        errors);
      const double per_product = seconds_from(start) / static_cast<double>(outputs.size() + 1);
      const double cut = static_cast<double>(group_.rows.size()) / static_cast<double>(rows);
      return static_cast<double>(heads) *
             (read + per_product * cut * static_cast<double>(in_records_.size() + 1));
    } catch (const InputError&) {  // the run's records fail at once
      return 0.0;
    } catch (const std::bad_alloc&) {
      return 0.0;
    }
  }

  // What a scoped cell follows, decided on this stream alone: each head bears its own part.
  const SharedResults* decide(const Stream& stream, const PlannedCell& cell,
                              std::map<WorkKey, std::unique_ptr<SharedResults>>& known,
                              double& seconds) const {
    const ModelWork work = cell.algorithm->model_work(*cell.params, cell.seed_or_zero());
    std::unique_ptr<SharedResults>& results = known[work.key()];
    if (!results) {
      results = std::make_unique<SharedResults>();
      const auto start = Clock::now();
      try {
        results->add(work, ModelContext{[&](const auto& visit) { visit(stream); }, group_.prompt,
                                        stream.shape.tokens, kernels_});
      } catch (const CellError& error) {
        results->fail(work.key(), error.what());
      } catch (const std::bad_alloc&) {
        results->fail(work.key(), kNoMemoryForCell);
      }
      seconds += seconds_from(start);
    }
    return results.get();
  }

  const Plan& plan_;
  const Kernels& kernels_;
  const WorkGroup& group_;
  const HeadCells& head_;
  const Dump& dump_;
  SharedPieces pieces_;               // of the cells to run
  bool every_row_ = false;            // that one of them visits
  std::set<std::size_t> in_records_;  // cells of the head that records of the layer are made of
  std::vector<Index> rows_;
  double scale_ = 1.0;
  double read_seconds_ = 0.0;
  double projection_seconds_ = 0.0;
  double rows_seconds_ = 0.0;
  std::size_t cells_ = 0;
};

}  // namespace

TimedSample time_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                        const HeadCells& head, double budget) {
  return Sampler(plan, dumps, kernels, head).run(budget);
}

}  // namespace kvbench
