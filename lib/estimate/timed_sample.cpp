#include "estimate/timed_sample.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "cellfiles/rows_file.hpp"
#include "estimate/short_replay.hpp"
#include "metrics/layer_outputs.hpp"
#include "metrics/metric_table.hpp"
#include "replay/kept_recorder.hpp"
#include "replay/replay.hpp"
#include "results/record.hpp"
#include "run/cache_files.hpp"
#include "run/memory_estimate.hpp"
#include "run/shared_pieces.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Cells that are replayed, where a head has them: of all methods, and at least of each.
constexpr std::size_t kFewCells = 8;
constexpr std::size_t kFewOfMethod = 2;
// Cells whose outputs are projected at most: their number is proportional to the time.
constexpr std::size_t kProjected = 4;
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Seconds of one thread since its beginning: of processor time, as other programs may use the
// processors too, but at least a fifth of those that have passed.
class Spent {
 public:
  double seconds() const {
    const double passed = seconds_from(start_);
    return std::max((processor_seconds() - before_) / thread_count(), passed / 5.0);
  }

 private:
  Clock::time_point start_ = Clock::now();
  double before_ = processor_seconds();
};

// Cells of a head that run the same code, except for their parameters.
struct Method {
  const AlgorithmDescription* algorithm = nullptr;
  bool is_stored = false;  // by a codec
  std::size_t to_run = 0;
  std::vector<TimeAtLength> times = {};

  bool has(const PlannedCell& cell) const {
    return cell.algorithm == algorithm && (cell.storage != nullptr) == is_stored;
  }
};

// A cell that is replayed in place of others.
struct Chosen {
  std::size_t cell = 0;    // in the plan
  std::size_t method = 0;  // in Sampler::methods_
};

class Sampler {
 public:
  Sampler(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
          const HeadCells& head, const ReadStream& read)
      : plan_(plan),
        kernels_(kernels),
        group_(plan.groups[head.group]),
        head_(head),
        dump_(read ? nullptr : &dumps[group_.dump]),
        read_stream_(read) {
    plan.cells.for_each_to_run(head.cells, [&](const PlannedCell& cell, std::size_t count) {
      pieces_.add(plan, group_, cell, count);
      if (method_of(cell) == methods_.size()) {
        methods_.push_back({cell.algorithm, cell.storage != nullptr});
      }
      methods_[method_of(cell)].to_run += count;
    });
    if (group_.hidden == 0) return;
    for (const std::size_t l : group_.layer_records) {
      for (const std::size_t c : plan.layer_records[l].cells) {
        const PlannedCell cell = plan.cells[c];
        if (cell.kv_head == head.kv_head && !cell.skip_reason) in_records_.insert(c);
      }
    }
  }

  TimedSample run(double budget, double memory_limit) {
    const Spent spent;
    rows_seconds_ = rows_seconds(budget);
    const double most_tokens =
        group_.shape.tokens * memory_limit / estimate_memory_bytes(plan_, group_, thread_count());
    const bool reads_all = group_.shape.first_query > 0;  // the last queries are stored
    if (reads_all && most_tokens < group_.shape.tokens) return extrapolated();
    double took = 0.0;
    double took_before = 0.0;
    try {
      for (const Index tokens : tried_lengths(group_.shape.tokens, group_.shape.d)) {
        const bool fits = tokens <= most_tokens;
        const double left = budget - spent.seconds();
        if (tokens_ > 0 && (!fits || !may_start(took_before, took, left))) break;
        const std::vector<Chosen> chosen = fitting(choose(kFewCells), tokens);
        if (tokens_ == 0)
          replay_part(tokens, chosen);  // buffers and threads are there from then on
        const Spent here;
        add(replay_part(tokens, chosen), part_of(tokens));
        took_before = std::exchange(took, here.seconds());
      }
      if (tokens_ == group_.shape.tokens && cells_ > 0) {
        const double left = std::max(budget - spent.seconds(), 0.0);
        const double per_cell = took / cells_;
        const auto more = std::min(static_cast<std::size_t>(left / per_cell), head_.to_run);
        if (more > 2 * cells_) add(replay_part(tokens_, choose(more)), 1.0);
      }
    } catch (const InputError&) {  // the stream cannot be read
      return {};
    } catch (const std::bad_alloc&) {  // the lengths before it were timed
    }
    return extrapolated();
  }

 private:
  double part_of(Index tokens) const { return tokens / static_cast<double>(group_.shape.tokens); }

  std::size_t method_of(const PlannedCell& cell) const {
    const auto same = std::find_if(methods_.begin(), methods_.end(),
                                   [&](const Method& each) { return each.has(cell); });
    return same - methods_.begin();
  }

  // About `count` cells, of every method in proportion and evenly spaced, the middle one of each
  // stretch.
  std::vector<Chosen> choose(std::size_t count) const {
    std::vector<Chosen> chosen;
    for (std::size_t m = 0; m < methods_.size(); ++m) {
      const std::size_t to_run = methods_[m].to_run;
      const std::size_t few = std::max(count / methods_.size(), kFewOfMethod);
      const std::size_t of_method = std::min(to_run, std::max(count * to_run / head_.to_run, few));
      std::size_t before = 0;  // cells of the method in front of the setting's
      std::size_t made = 0;
      plan_.cells.for_each_to_run(head_.cells, [&](const PlannedCell& cell, std::size_t size) {
        if (!methods_[m].has(cell)) return;
        for (; made < of_method; ++made) {
          const std::size_t next = (2 * made + 1) * to_run / (2 * of_method);
          if (next >= before + size) break;
          chosen.push_back({cell.index + (next - before), m});
        }
        before += size;
      });
    }
    return chosen;
  }

  // The chosen cells that can also run on a part of the stream. One that has not been timed joins
  // only while the stream is short, since its time is unknown.
  std::vector<Chosen> fitting(std::vector<Chosen> chosen, Index tokens) const {
    const ShortReplay cut = short_replay(group_.shape, group_.prompt, group_.rows, tokens);
    std::erase_if(chosen, [&](const Chosen& each) {
      const PlannedCell cell = plan_.cells[each.cell];
      if (tokens > kShort && methods_[each.method].times.empty()) return true;
      if (tokens == group_.shape.tokens) return false;
      const StreamId id{group_.sequence, group_.layer, cell.kv_head};
      const Params params = short_params(cell.algorithm->parameters, *cell.params, part_of(tokens));
      return cut.rows.empty() || reason_to_skip(*cell.algorithm, params, cut.shape, cut.prompt) ||
             (cell.algorithm->misfit && cell.algorithm->misfit(params, id, cut.shape, cut.prompt));
    });
    return chosen;
  }

  // Seconds of one replay of a part of the stream, for all cells of the head.
  struct Seconds {
    double read = 0.0;
    double reference = 0.0;                 // with the logits of the rows
    double shared = 0.0;                    // work that several cells share
    std::map<std::size_t, double> methods;  // by their number
  };

  void add(const Seconds& seconds, double part) {
    read_.push_back({part, seconds.read});
    reference_.push_back({part, seconds.reference});
    shared_.push_back({part, seconds.shared});
    for (const auto& [m, each] : seconds.methods) methods_[m].times.push_back({part, each});
  }

  TimedSample extrapolated() const {
    TimedSample sample{.cells = cells_,
                       .projection_seconds = projection_seconds_,
                       .rows_seconds = rows_seconds_,
                       .tokens = tokens_};
    sample.seconds = projection_seconds_ + rows_seconds_;
    for (const auto* times : {&read_, &reference_, &shared_}) {
      sample.seconds += time_at_full_length(*times);
    }
    for (const Method& method : methods_) {
      sample.seconds += time_at_full_length(method.times);
      if (method.times.empty()) sample.unknown_cells += method.to_run;
    }
    return sample;
  }

  // The first part of the head's stream; of one whose first queries are not stored all is read,
  // once.
  const Stream& read(const ShortReplay& cut) {
    const bool reads_all = group_.shape.first_query > 0;
    if (!reads_all || !data_) {
      const auto start = Clock::now();
      data_.reset();
      const Index tokens = reads_all ? group_.shape.tokens : cut.shape.tokens;
      data_ = read_stream_
                  ? read_stream_(group_, head_.kv_head, tokens)
                  : dump_->read_stream(group_.sequence, group_.layer, head_.kv_head, tokens);
      read_seconds_ = seconds_from(start);
    }
    stream_ = data_->stream;
    stream_.shape = cut.shape;
    if (!cut.shape.repeat) {
      stream_.repeat_queries.clear();
      stream_.repeat_keys = {};
    }
    stream_.keys.rows = stream_.values.rows = cut.shape.tokens;
    for (ConstMatrix& query : stream_.queries) {
      query.rows = cut.shape.tokens - cut.shape.first_query;
    }
    return stream_;
  }

  // Replays these cells on a part of the stream.
  Seconds replay_part(Index tokens, const std::vector<Chosen>& chosen) {
    const ShortReplay cut = short_replay(group_.shape, group_.prompt, group_.rows, tokens);
    const Stream& stream = read(cut);
    cells_ = chosen.size();
    tokens_ = tokens;
    double model_seconds = 0.0;
    std::map<WorkKey, std::unique_ptr<SharedResults>> model_results;
    std::vector<ReplayCell> replayed;
    std::vector<std::size_t> count(methods_.size(), 0);
    for (const Chosen& each : chosen) {
      const PlannedCell cell = plan_.cells[each.cell];
      ReplayCell replay_cell{
          cell.algorithm,
          short_params(cell.algorithm->parameters, *cell.params, part_of(tokens)),
          cell.seed_or_zero(),
          nullptr,
          nullptr,
          cell.storage};
      if (cell.scope) {
        const std::size_t streams = cell.scope->layers.size() * cell.scope->kv_heads.size();
        const bool stay = streams_stay(group_.shape, streams);
        replay_cell.model_results =
            decide(stream, cut.prompt, replay_cell, stay, model_results, model_seconds);
      }
      replayed.push_back(replay_cell);
      ++count[each.method];
    }
    std::vector<double> cell_seconds(methods_.size(), 0.0);
    std::size_t written = 0;
    std::vector<CellOutputs> outputs;
    const auto done = [&](std::size_t index, CellResult&& result) {
      const bool is_projected = result.outputs && outputs.size() < kProjected &&
                                in_records_.count(chosen[index].cell) != 0;
      if (is_projected) outputs.push_back(std::move(*result.outputs));
      result.outputs.reset();
      cell_seconds[chosen[index].method] += result.seconds;
      // Into the journal and, from there, into results.json.
      const Json record = cell_record(plan_, plan_.cells[chosen[index].cell], result, "");
      written += to_line(parse_line(to_line(record))).size();
    };
    const ReplaySetting setting{.prompt = cut.prompt,
                                .rows = cut.rows,
                                .element_bytes = plan_.element_bytes,
                                .keep_row_values = plan_.keep_rows,
                                .keep_outputs = !in_records_.empty()};
    std::vector<std::unique_ptr<KeptRecorder>> recorders;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!plan_.keep_caches || !has_cache_file(plan_.cells[chosen[i].cell])) continue;
      recorders.push_back(std::make_unique<KeptRecorder>(stream, setting, replayed[i]));
      replayed[i].watch = recorders.back().get();
    }
    const auto start = Clock::now();
    const double before = processor_seconds();
    const ReplayTiming timing = replay(stream, setting, replayed, kernels_, done);
    const double passed = seconds_from(start);
    // A replay always has work: one that had less than a processor waited for other programs.
    const double at_work = std::min(1.0, (processor_seconds() - before) / passed);
    SharedPieces pieces;
    for (const Chosen& each : chosen) pieces.add(plan_, group_, plan_.cells[each.cell], 1);
    const double works = pieces_.count() / std::max(1.0, pieces.count());
    Seconds seconds;
    seconds.read = read_seconds_ * (group_.shape.first_query > 0 ? part_of(tokens) : 1.0);
    const double reference =
        timing.reference_seconds + timing.logits_seconds + timing.metrics_seconds;
    seconds.reference = at_work * reference;
    seconds.shared = at_work * (timing.shared_seconds + model_seconds) * works;
    // Cells run side by side; a method bears its part of the time that all take.
    const double of_cells = at_work * (passed - reference - timing.shared_seconds);
    const double sum = std::accumulate(cell_seconds.begin(), cell_seconds.end(), 0.0);
    for (std::size_t m = 0; m < methods_.size(); ++m) {
      if (count[m] == 0) continue;
      const double of_method = sum > 0.0 ? of_cells * cell_seconds[m] / sum : 0.0;
      seconds.methods[m] = of_method * methods_[m].to_run / count[m];
    }
    projection_seconds_ = projection_seconds(outputs, cut.rows.size());
    return seconds;
  }

  // Seconds to write the rows of all cells of the head; none of those that are timed below is
  // written.
  double rows_seconds(double budget) const {
    if (!plan_.keep_rows) return 0.0;
    const double per_cell = seconds_per_cell_of_rows(row_columns(), group_.shape.heads_per_kv,
                                                     group_.rows.size(), budget / 8.0);
    return per_cell * head_.to_run;
  }

  // Seconds that this head adds to the records of the whole layer: its query heads' parts of W_O,
  // each read and multiplied with the exact outputs and the errors of every cell of a record.
  double projection_seconds(const std::vector<CellOutputs>& outputs, std::size_t replayed) const {
    if (outputs.empty()) return 0.0;
    const Index dv = group_.shape.dv;
    const Index heads = group_.shape.heads_per_kv;
    const Index rows = replayed;
    const auto first_head = [&](const std::vector<double>& of_all) -> ConstMatrix {
      return {of_all.data(), rows, dv, heads * dv};
    };
    try {
      LayerOutputs products(rows, 1, group_.hidden, outputs.size());
      std::vector<ConstMatrix> errors;
      for (const CellOutputs& each : outputs) errors.push_back(first_head(each.errors));
      auto start = Clock::now();
      const UnfilledDoubles weight =
          dump_->read_wo(group_.sequence, group_.layer, static_cast<int>(head_.kv_head * heads));
      const double read = seconds_from(start);
      start = Clock::now();
      products.add_head(0, {weight.data(), dv, group_.hidden}, first_head(*outputs.front().exact),
                        errors);
      const double per_product = seconds_from(start) / (outputs.size() + 1);
      const double cut = group_.rows.size() / static_cast<double>(rows);
      return heads * (read + per_product * cut * (in_records_.size() + 1));
    } catch (const InputError&) {  // the run's records fail at once
      return 0.0;
    } catch (const std::bad_alloc&) {
      return 0.0;
    }
  }

  // Decisions that a scoped cell follows, made on this stream alone: each head bears its own part.
  const SharedResults* decide(const Stream& stream, Index prompt, const ReplayCell& cell, bool stay,
                              std::map<WorkKey, std::unique_ptr<SharedResults>>& known,
                              double& seconds) const {
    const ModelWork work = cell.algorithm->model_work(cell.params, cell.seed);
    std::unique_ptr<SharedResults>& results = known[work.key()];
    if (!results) {
      results = std::make_unique<SharedResults>();
      const auto start = Clock::now();
      try {
        results->add(work, ModelContext{[&](const auto& visit) { visit(stream); }, prompt,
                                        stream.shape.tokens, kernels_, stay});
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
  const Dump* dump_;  // null: `read_` is in its place
  const ReadStream& read_stream_;
  SharedPieces pieces_;               // pieces of the cells to run
  std::set<std::size_t> in_records_;  // cells of the head that records of the layer are made of
  std::vector<Method> methods_;
  std::vector<TimeAtLength> read_;
  std::vector<TimeAtLength> reference_;
  std::vector<TimeAtLength> shared_;
  std::unique_ptr<StreamData> data_;
  Stream stream_;  // the first part of it
  double read_seconds_ = 0.0;
  double projection_seconds_ = 0.0;
  double rows_seconds_ = 0.0;
  std::size_t cells_ = 0;
  Index tokens_ = 0;
};

}  // namespace

TimedSample time_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                        const HeadCells& head, double budget, double memory_limit,
                        const ReadStream& read) {
  return Sampler(plan, dumps, kernels, head, read).run(budget, memory_limit);
}

}  // namespace kvbench
