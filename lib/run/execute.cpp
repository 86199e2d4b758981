#include "run/execute.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <tuple>
#include <utility>

#include "replay/kept_recorder.hpp"
#include "replay/replay.hpp"
#include "results/layer_record.hpp"
#include "results/record.hpp"
#include "run/cache_files.hpp"
#include "run/layer_gatherer.hpp"
#include "run/memory_estimate.hpp"
#include "run/read_ahead.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/layer_records.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

// Scoped algorithms decide once for all layers and heads of their scope. Their decision is kept for
// the current sequence, or layer if the scope is one; if it failed, the cells of the scope fail
// with the reason.
class ModelWorks {
 public:
  explicit ModelWorks(const Execution& execution) : execution_(execution) {}

  const SharedResults& of(const WorkGroup& group, const PlannedCell& cell) {
    if (dump_ != group.dump || sequence_ != group.sequence) {
      dump_ = group.dump;
      sequence_ = group.sequence;
      by_scope_.clear();
    }
    std::erase_if(by_scope_, [&](const auto& entry) {
      const std::vector<int>& layers = std::get<1>(entry.first);
      return layers.size() == 1 && layers.front() != group.layer;
    });
    SharedResults& results =
        by_scope_[{group.first_tokens, cell.scope->layers, cell.scope->kv_heads}];
    const ModelWork work = cell.algorithm->model_work(*cell.params, cell.seed_or_zero());
    if (results.has(work.key())) return results;
    const Index streams = cell.scope->layers.size() * cell.scope->kv_heads.size();
    const bool stay = streams_stay(group.shape, streams);
    std::vector<std::unique_ptr<StreamData>> staying;
    try {
      results.add(
          work, ModelContext{
                    [&](const auto& visit) { each(group, cell, stay ? &staying : nullptr, visit); },
                    group.prompt, group.shape.tokens, execution_.device.kernels(), stay});
    } catch (const InputError& error) {
      results.fail(work.key(), error.what());
    } catch (const CellError& error) {
      results.fail(work.key(), error.what());
    } catch (const std::bad_alloc&) {
      results.fail(work.key(), of_layer(cell) ? "not enough memory for the scores of all heads"
                                              : "not enough memory for the scores of all layers "
                                                "and heads");
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception&) {
      std::throw_with_nested(BugError(std::string("deciding for the whole ") +
                                      (of_layer(cell) ? "layer: " : "model: ") +
                                      cell_path(execution_.plan, cell)));
    }
    return results;
  }

 private:
  static bool of_layer(const PlannedCell& cell) {
    return cell.algorithm->replay_scope(*cell.params) == ReplayScope::kLayer;
  }

  // `staying`: the streams of the visits before, if they stay.
  void each(const WorkGroup& group, const PlannedCell& cell,
            std::vector<std::unique_ptr<StreamData>>* staying,
            const std::function<void(const Stream&)>& visit) const {
    const Dump& dump = execution_.dumps[group.dump];
    if (staying != nullptr && !staying->empty()) {
      for (const auto& data : *staying) visit(data->stream);
      return;
    }
    for (const int layer : cell.scope->layers) {
      const Index heads = dump.info().find_sequence(group.sequence)->find_layer(layer)->kv_heads;
      for (const int head : cell.scope->kv_heads) {
        if (head >= heads) continue;
        auto data = dump.read_stream(group.sequence, layer, head, group.shape.tokens);
        visit(data->stream);
        if (staying != nullptr) {
          staying->push_back(std::move(data));
        } else {
          dump.reuse(std::move(data));
        }
      }
    }
  }

  using ScopeKey = std::tuple<Index, std::vector<int>, std::vector<int>>;  // tokens, layers, heads

  const Execution& execution_;
  std::optional<std::size_t> dump_;
  std::string sequence_;
  std::map<ScopeKey, SharedResults> by_scope_;
};

class HeadRun {
 public:
  // `gatherer`: of the records of the whole layer; null: of none.
  HeadRun(const Execution& execution, const WorkGroup& group, std::vector<std::size_t> cells,
          ModelWorks& model_works, RunObserver& observer, LayerGatherer* gatherer)
      : execution_(execution),
        group_(group),
        cells_(std::move(cells)),
        model_works_(model_works),
        observer_(observer),
        gatherer_(gatherer) {}

  // Takes the next of the streams, which must be this head's.
  void run(ReadAhead& streams, ReplayRoom& room, GroupTiming& timing) {
    std::unique_ptr<StreamData> data;
    const auto start = Clock::now();
    try {
      data = streams.next();
    } catch (const InputError& error) {
      fail_all(error.what());
      return;
    } catch (const std::bad_alloc&) {
      fail_all("not enough memory to read the stream; choose fewer tokens (select.tokens)");
      return;
    }
    timing.read_seconds += std::chrono::duration<double>(Clock::now() - start).count();

    std::vector<ReplayCell> replayed;
    replayed.reserve(cells_.size());
    for (const std::size_t c : cells_) {
      const PlannedCell& cell = execution_.plan.cells[c];
      replayed.push_back({cell.algorithm, cell.params, cell.seed_or_zero(),
                          cell.scope ? &model_works_.of(group_, cell) : nullptr, nullptr,
                          cell.storage});
    }
    const ReplaySetting setting{.prompt = group_.prompt,
                                .rows = group_.rows,
                                .element_bytes = execution_.plan.element_bytes,
                                .keep_row_values = execution_.rows != nullptr,
                                .keep_outputs = gatherer_ != nullptr && gatherer_->needs_outputs(),
                                .evidence = group_.evidence};
    std::vector<std::unique_ptr<KeptRecorder>> recorders(cells_.size());
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (execution_.caches == nullptr || !has_cache_file(execution_.plan.cells[cells_[i]]))
        continue;
      recorders[i] = std::make_unique<KeptRecorder>(data->stream, setting, replayed[i]);
      replayed[i].watch = recorders[i].get();
    }
    const auto done = [&](std::size_t index, CellResult&& result) {
      if (result.failed) execution_.device.throw_if_failed();
      const std::unique_ptr<KeptRecorder> recorder = std::move(recorders[index]);
      record(cells_[index], std::move(result), recorder.get());
    };
    const ReplayTiming spent =
        replay(data->stream, setting, replayed, execution_.device.kernels(), done, room);
    timing.reference_seconds += spent.reference_seconds;
    timing.metrics_seconds += spent.metrics_seconds;
    execution_.dumps[group_.dump].reuse(std::move(data));
  }

 private:
  // `recorder`: null where no cache file is written of the cell.
  void record(std::size_t c, CellResult&& result, KeptRecorder* recorder) {
    const PlannedCell& cell = execution_.plan.cells[c];
    const Json line = cell_record(execution_.plan, cell, result, execution_.repro(cell));
    if (gatherer_ != nullptr) {
      if (line.at("status") != "ok") {
        result.failed = true;
        result.reason = line.at("reason");
      }
      gatherer_->take(c, result);
    }
    if (execution_.rows != nullptr && result.row_values && line.at("status") == "ok") {
      execution_.rows->write(cell.id, {.heads_per_kv = group_.shape.heads_per_kv,
                                       .rows = std::move(result.row_values->rows),
                                       .columns = std::move(result.row_values->columns)});
    }
    if (recorder != nullptr && line.at("status") == "ok") {
      if (const auto kept = recorder->finish()) execution_.caches->write(cell.id, *kept);
    }
    execution_.journal.append(c, line);
    observer_.cell_done();
  }

  void fail_all(const std::string& reason) {
    for (const std::size_t c : cells_) {
      const PlannedCell& cell = execution_.plan.cells[c];
      if (gatherer_ != nullptr) {
        CellResult failed;
        failed.failed = true;
        failed.reason = reason;
        gatherer_->take(c, failed);
      }
      execution_.journal.append(
          c, failed_record(execution_.plan, cell, reason, execution_.repro(cell)));
      observer_.cell_done();
    }
  }

  const Execution& execution_;
  const WorkGroup& group_;
  std::vector<std::size_t> cells_;
  ModelWorks& model_works_;
  RunObserver& observer_;
  LayerGatherer* gatherer_;
};

// The part of a group that is computed in one pass over its KV heads.
struct Pass {
  std::size_t group = 0;                          // index into the plan's
  std::vector<std::size_t> layers;                // indices into the plan's layer records
  std::map<int, std::vector<std::size_t>> cells;  // by KV head
};

// Whether room for the blocks of one group is as large as the other group needs.
bool blocks_are_alike(const WorkGroup& a, const WorkGroup& b) {
  return a.shape.tokens == b.shape.tokens && a.shape.heads_per_kv == b.shape.heads_per_kv &&
         a.rows == b.rows;
}

// Group by group. Records of whole layers are gathered as many at a time as the memory allows; the
// cells of none go with the first of them.
std::vector<Pass> pending_passes(const Execution& execution, const std::vector<bool>& pending) {
  const Plan& plan = execution.plan;
  const std::vector<bool> layers = pending_layers(execution);
  std::vector<Pass> passes;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const WorkGroup& group = plan.groups[g];
    const std::size_t at_once = layers_at_once(plan, group, thread_count(), execution.memory_limit);
    const std::size_t first = passes.size();
    passes.push_back({g, {}, {}});
    std::map<std::size_t, std::size_t> pass_of;  // by cell, of records
    for (const std::size_t l : group.layer_records) {
      if (!layers[l]) continue;
      if (passes.back().layers.size() == at_once) passes.push_back({g, {}, {}});
      passes.back().layers.push_back(l);
      for (const std::size_t c : plan.layer_records[l].cells) pass_of[c] = passes.size() - 1;
    }
    for (const std::size_t c : group.cells) {
      if (!pending[c]) continue;
      const auto place = pass_of.find(c);
      passes[place == pass_of.end() ? first : place->second].cells[plan.cells[c].kv_head].push_back(
          c);
    }
    if (passes.back().cells.empty()) passes.pop_back();
  }
  return passes;
}

// A KV head of a pass.
struct HeadWork {
  const Pass* pass;
  int kv_head;
  const std::vector<std::size_t>* cells;
};

std::vector<HeadWork> heads_of(const std::vector<Pass>& passes) {
  std::vector<HeadWork> works;
  for (const Pass& pass : passes) {
    for (const auto& [kv_head, cells] : pass.cells) works.push_back({&pass, kv_head, &cells});
  }
  return works;
}

void record_layers(const Execution& execution, const Pass& pass, const LayerGatherer& gatherer) {
  for (const std::size_t l : pass.layers) {
    const PlannedLayerRecord& layer = execution.plan.layer_records[l];
    const LayerGatherer::Outcome outcome = gatherer.outcome(l);
    const std::string repro = execution.repro(layer);
    execution.journal.append_layer(
        l, outcome.result
               ? layer_record(execution.plan, layer, *outcome.result, repro)
               : empty_layer_record(execution.plan, layer, "failed", outcome.failure, repro));
  }
}

// Why a record cannot be computed: a cell that failed earlier, and is not to be computed again.
std::optional<std::string> earlier_failure(const Execution& execution,
                                           const PlannedLayerRecord& layer) {
  if (execution.retry_failed) return std::nullopt;
  for (const std::size_t c : layer.cells) {
    if (execution.journal.state(c) != CellState::kFailed) continue;
    return fmt::format("KV head {}: {}", execution.plan.cells[c].kv_head,
                       execution.journal.read(c).value("reason", ""));
  }
  return std::nullopt;
}

// Records of whole layers that nothing needs to be computed for.
void record_empty_layers(const Execution& execution) {
  for (std::size_t l = 0; l < execution.plan.layer_records.size(); ++l) {
    const PlannedLayerRecord& layer = execution.plan.layer_records[l];
    if (!execution.selection.groups[layer.group]) continue;
    const CellState state = execution.journal.layer_state(l);
    const auto append = [&](const char* status, const std::string& reason) {
      execution.journal.append_layer(
          l, empty_layer_record(execution.plan, layer, status, reason, execution.repro(layer)));
    };
    if (const auto reason = layer_skip_reason(execution.plan, layer)) {
      if (state != CellState::kSkipped) append("skipped", *reason);
    } else if (state == CellState::kMissing || state == CellState::kSkipped) {
      if (const auto failure = earlier_failure(execution, layer)) append("failed", *failure);
    }
  }
}

void record_skipped(const Execution& execution) {
  for (std::size_t c = 0; c < execution.plan.cells.size(); ++c) {
    const PlannedCell& cell = execution.plan.cells[c];
    if (!cell.skip_reason || !execution.selection.has(cell) ||
        execution.journal.state(c) == CellState::kSkipped) {
      continue;
    }
    execution.journal.append(c, skipped_record(execution.plan, cell, execution.repro(cell)));
  }
}

}  // namespace

std::vector<bool> pending_layers(const Execution& execution) {
  std::vector<bool> pending(execution.plan.layer_records.size(), false);
  for (std::size_t l = 0; l < pending.size(); ++l) {
    const PlannedLayerRecord& layer = execution.plan.layer_records[l];
    if (!execution.selection.groups[layer.group] || layer_skip_reason(execution.plan, layer)) {
      continue;
    }
    const CellState state = execution.journal.layer_state(l);
    const bool is_done =
        state == CellState::kOk || (state == CellState::kFailed && !execution.retry_failed);
    pending[l] = !is_done && !earlier_failure(execution, layer);
  }
  return pending;
}

std::vector<bool> pending_cells(const Execution& execution) {
  std::vector<bool> pending(execution.plan.cells.size(), false);
  for (std::size_t c = 0; c < pending.size(); ++c) {
    const PlannedCell& cell = execution.plan.cells[c];
    if (cell.skip_reason || !execution.selection.has(cell)) continue;
    switch (execution.journal.state(c)) {
      case CellState::kMissing:
      case CellState::kSkipped:  // an earlier program could not run it
        pending[c] = true;
        break;
      case CellState::kFailed:
        pending[c] = execution.retry_failed;
        break;
      case CellState::kOk:
        pending[c] = (execution.rows != nullptr && !execution.rows->has(cell.id)) ||
                     (execution.caches != nullptr && has_cache_file(cell) &&
                      !execution.caches->has(cell.id));
        break;
    }
  }
  const std::vector<bool> layers = pending_layers(execution);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!layers[l]) continue;
    for (const std::size_t c : execution.plan.layer_records[l].cells) pending[c] = true;
  }
  return pending;
}

std::vector<std::optional<GroupTiming>> execute(const Execution& execution, RunObserver& observer,
                                                std::atomic<bool>& stop) {
  record_skipped(execution);
  record_empty_layers(execution);
  const std::vector<bool> pending = pending_cells(execution);
  const auto total = static_cast<std::size_t>(std::count(pending.begin(), pending.end(), true));
  // From here on the per-row values and caches of finished cells survive a kill, and, with the
  // journal's lines, a power cut.
  if (execution.rows != nullptr && total > 0) {
    execution.journal.sync_before(execution.rows->start());
  }
  if (execution.caches != nullptr && total > 0) {
    execution.journal.sync_before(execution.caches->start());
  }
  observer.begin(total);
  std::vector<std::optional<GroupTiming>> timing(execution.plan.groups.size());
  ModelWorks model_works(execution);
  const std::vector<Pass> passes = pending_passes(execution, pending);
  const std::vector<HeadWork> works = heads_of(passes);
  ReadAhead streams(works.size(), [&](std::size_t w) {
    const WorkGroup& group = execution.plan.groups[works[w].pass->group];
    return execution.dumps[group.dump].read_stream(group.sequence, group.layer, works[w].kv_head,
                                                   group.shape.tokens);
  });
  ReplayRoom room;
  const WorkGroup* before = nullptr;
  const Stoppable stoppable(stop);
  try {
    for (const Pass& pass : passes) {
      const WorkGroup& group = execution.plan.groups[pass.group];
      if (before != nullptr && !blocks_are_alike(*before, group)) room = {};
      before = &group;
      if (!timing[pass.group]) timing[pass.group].emplace();
      std::optional<LayerGatherer> gatherer;
      if (!pass.layers.empty()) {
        gatherer.emplace(execution.plan, execution.dumps[group.dump], pass.layers);
      }
      for (const auto& [kv_head, cells] : pass.cells) {
        throw_if_stopped();
        observer.at(
            fmt::format("sequence {} layer {} head {}", group.sequence, group.layer, kv_head));
        HeadRun(execution, group, cells, model_works, observer, gatherer ? &*gatherer : nullptr)
            .run(streams, room, *timing[pass.group]);
        if (gatherer) gatherer->end_head(kv_head);
      }
      if (gatherer) record_layers(execution, pass, *gatherer);
    }
  } catch (const Stopped&) {
    // Cells without a line in the journal are computed when the run resumes.
  }
  return timing;
}

}  // namespace kvbench
