#include "run/replay_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <set>
#include <utility>

#include "cellfiles/cache_file.hpp"
#include "cellfiles/calibration_file.hpp"
#include "replay/replay.hpp"
#include "results/record.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"
#include "system/hash.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

// Gathers answers, and tokens from the row at which they are first kept to the one at which they
// are not any more.
class StreamWatch : public ReplayWatch {
 public:
  StreamWatch(const StreamShape& shape, Index rows)
      : shape_(shape),
        rows_(rows),
        since_(shape.tokens, kAbsent),
        seen_(since_.size(), kAbsent),
        outputs_(shape.heads_per_kv * rows * shape.dv, 0.0) {}

  void kept(Index row, bool, const Sketch& sketch) override {
    std::vector<std::int32_t> now;
    for (const SketchRow& held : sketch.rows()) {
      if (held.token < 0) continue;
      const std::size_t token = held.token;
      if (seen_[token] == row) continue;
      seen_[token] = row;
      now.push_back(held.token);
      if (since_[token] == kAbsent) since_[token] = row;
    }
    std::erase_if(before_, [&](std::int32_t token) { return seen_[token] == row; });
    end_stays(row);
    before_ = std::move(now);
  }

  void answered(Index r, Index g, const Answer& answer) override {
    std::copy(answer.answer.begin(), answer.answer.end(),
              outputs_.begin() + (g * rows_ + r) * shape_.dv);
  }

  // [G, R, dv]
  std::vector<double> take_outputs() { return std::move(outputs_); }

  // After the last row.
  std::vector<KeptToken> take_kept() {
    end_stays(shape_.tokens);
    return std::move(kept_);
  }

 private:
  static constexpr Index kAbsent = -1;

  // Ends the stays of the tokens in `before_`.
  void end_stays(Index row) {
    std::sort(before_.begin(), before_.end());
    for (const std::int32_t token : before_) {
      Index& since = since_[token];
      kept_.push_back({token, since, row});
      since = kAbsent;
    }
  }

  const StreamShape& shape_;
  Index rows_;
  std::vector<std::int32_t> before_;  // tokens kept at the row before, each once
  std::vector<Index> since_, seen_;   // by token
  std::vector<KeptToken> kept_;
  std::vector<double> outputs_;
};

PlannedDump described(const StreamCell& cell) {
  const Stream& stream = cell.stream;
  PlannedLayer layer{.index = stream.id.layer,
                     .kv_heads = stream.id.kv_head + 1,
                     .shape = stream.shape,
                     .chunk_bytes = 0};
  PlannedSequence sequence{.name = stream.id.sequence,
                           .prompt_tokens = std::nullopt,
                           .evidence = nullptr,
                           .layers = {std::move(layer)}};
  return {.path = "arrays",
          .fingerprint = cell.fingerprint,
          .state = "",
          .model = "",
          .n_layers = stream.shape.n_layers,
          .sequences = {std::move(sequence)}};
}

json whole_sweep(const StreamCell& cell) {
  json sweep = cell.sweep;
  sweep["schema_version"] = 1;
  sweep["name"] = "replay";
  sweep["dumps"] = {"arrays"};
  sweep["select"] = {{"kv_heads", {cell.stream.id.kv_head}}};
  return sweep;
}

// Decision of the cell's algorithm for a layer or the model, if it makes one, from this stream.
SharedResults decided_for_model(const StreamCell& cell, const PlannedCell& planned, Index prompt,
                                const Kernels& kernels) {
  SharedResults results;
  if (!planned.scope) return results;
  const ModelWork work = planned.algorithm->model_work(*planned.params, planned.seed_or_zero());
  const ModelContext context{
      [&](const std::function<void(const Stream&)>& visit) { visit(cell.stream); }, prompt,
      cell.stream.shape.tokens, kernels, true};
  try {
    results.add(work, context);
  } catch (const CellError& error) {
    results.fail(work.key(), error.what());
  } catch (const std::bad_alloc&) {
    results.fail(work.key(), kNoMemoryForCell);
  }
  return results;
}

}  // namespace

StreamCellResult replay_stream(const StreamCell& cell, const Kernels& kernels,
                               const std::vector<AlgorithmDescription>& algorithms) {
  SweepConfig config = resolved_sweep(whole_sweep(cell), cell.place, algorithms);
  std::vector<std::shared_ptr<const KeptCache>> caches;
  for (const std::string& path : config.paths_of<KeptCache>()) caches.push_back(open_cache(path));
  config.set_files(caches);
  std::vector<std::shared_ptr<const Calibration>> calibrations;
  for (const std::string& path : config.paths_of<Calibration>()) {
    calibrations.push_back(open_calibration(path));
  }
  config.set_files(calibrations);
  const Plan plan = make_plan(config, {described(cell)});
  if (plan.cells.size() != 1) {
    throw InputError(
        fmt::format("{}: the parameters describe {} cells; give one value each, or run a sweep",
                    cell.place, plan.cells.size()));
  }
  const PlannedCell& planned = plan.cells.front();
  const WorkGroup& group = plan.groups.front();
  StreamCellResult out;
  out.rows = group.rows;
  if (planned.skip_reason) {
    out.record = skipped_record(plan, planned, cell.repro);
    return out;
  }
  const SharedResults model = decided_for_model(cell, planned, group.prompt, kernels);
  StreamWatch watch(cell.stream.shape, std::ssize(group.rows));
  const ReplaySetting setting{.prompt = group.prompt,
                              .rows = group.rows,
                              .element_bytes = plan.element_bytes,
                              .keep_row_values = false};
  const ReplayCell replayed{planned.algorithm,
                            planned.params,
                            planned.seed_or_zero(),
                            planned.scope ? &model : nullptr,
                            &watch,
                            planned.storage};
  replay(cell.stream, setting, {replayed}, kernels, [&](std::size_t, CellResult&& result) {
    out.record = cell_record(plan, planned, result, cell.repro);
  });
  if (out.record.at("status") == "ok") {
    out.outputs = watch.take_outputs();
    out.kept = watch.take_kept();
  }
  return out;
}

std::string stream_fingerprint(const Stream& stream) {
  const StreamShape& shape = stream.shape;
  Hash128 hash;
  hash.add(fmt::format("{}\n{} {}\n{} {} {} {} {} {} {} {} {}\n", stream.id.sequence,
                       stream.id.layer, stream.id.kv_head, shape.tokens, shape.d, shape.dv,
                       shape.heads_per_kv, shape.first_query, shape.window, shape.scale,
                       shape.softcap, shape.n_layers));
  if (shape.rope) {
    hash.add(shape.rope->interleaved ? "interleaved" : "half");
    hash.add(shape.rope->inv_freq.data(), shape.rope->inv_freq.size() * sizeof(double));
  }
  if (shape.chunk > 0) hash.add(fmt::format("chunk {}\n", shape.chunk));
  if (!shape.causal) hash.add("not causal\n");
  if (shape.value_in_key) hash.add("values in keys\n");
  const auto add_numbers = [&](const char* name, const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    hash.add(name);
    hash.add(numbers.data(), numbers.size() * sizeof(double));
  };
  add_numbers("sinks\n", stream.sinks);
  add_numbers("alibi_slopes\n", stream.alibi_slopes);
  add_numbers("key_bias\n", stream.key_bias);
  const auto add = [&](const ConstMatrix& matrix) {
    for (Index i = 0; i < matrix.rows; ++i) {
      hash.add(matrix.row(i), matrix.cols * sizeof(double));
    }
  };
  add(stream.keys);
  add(stream.values);
  for (const ConstMatrix& queries : stream.queries) add(queries);
  for (const double* norms : stream.wo_v_l1) {
    hash.add("wo_v_l1");
    hash.add(norms, shape.tokens * sizeof(double));
  }
  if (shape.repeat) {
    hash.add("repeat");
    for (const auto& [first, end, rows] : shape.repeat->parts) {
      hash.add(fmt::format("{} {} {}\n", first, end, rows));
    }
    for (const ConstMatrix& queries : stream.repeat_queries) add(queries);
    add(stream.repeat_keys);
  }
  return hash.hex();
}

}  // namespace kvbench
