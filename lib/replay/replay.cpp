#include "replay/replay.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>
#include <variant>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/stop.hpp"
#include "kernels/row_block.hpp"
#include "metrics/error_accumulator.hpp"
#include "metrics/reference.hpp"
#include "metrics/trivial_answers.hpp"
#include "replay/kept_logits.hpp"
#include "replay/memory_meter.hpp"
#include "replay/shared_work.hpp"
#include "replay/traffic_meter.hpp"
#include "sketch/estimator.hpp"
#include "storage/stored_cache.hpp"
#include "storage/stored_stream.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "h2o budget=8 group=sum, seed 3, of sequence a, layer 0, KV head 1"
std::string cell_text(const ReplayCell& cell, const StreamId& stream) {
  std::string text = cell.algorithm->id;
  for (const auto& [name, value] : cell.params.entries()) {
    text += " " + name + "=" + to_string(value);
  }
  return text + ", seed " + std::to_string(cell.seed) + ", of sequence " + stream.sequence +
         ", layer " + std::to_string(stream.layer) + ", KV head " + std::to_string(stream.kv_head);
}

// A promise that an answer without any method keeps as well says nothing. The theorem speaks of row
// n - 1; if that is not scored, the sizes alone decide.
bool is_vacuous(const Promise& promise, const TrivialAnswers* trivial) {
  if (promise.vacuous || !promise.epsilon || trivial == nullptr) return promise.vacuous;
  const MetricValue reached = trivial->best(promise.metric);
  return reached && *promise.epsilon >= *reached;
}

// Logits and exponentials in memory at one time.
constexpr Index kLogitBytes = Index{256} << 20;

// One cell on its way through the decode rows.
class Replayed {
 public:
  // `stored`: the stream as the cell's storage writes it; null without one.
  Replayed(const Stream& stream, const ReplaySetting& setting, const ReplayCell& cell,
           const Kernels& kernels, const SharedResults& shared, const Reference& reference,
           const StoredStream* stored)
      : stream_(stream),
        setting_(setting),
        kernels_(kernels),
        layout_(cell.storage.get(), stream.shape, setting.prompt, setting.element_bytes),
        needs_(cell.algorithm->needs(cell.params)),
        algorithm_(cell.algorithm->create(
            cell.params, {stream, setting.prompt, cell.seed, kernels, shared, &setting.rows})),
        reference_(reference),
        errors_(stream, reference),
        memory_(stream.shape, setting.element_bytes, layout_,
                cell.algorithm->never_evicts(cell.params)),
        traffic_(stream.shape, setting.element_bytes, layout_,
                 cell.algorithm->never_evicts(cell.params)),
        values_summed_(static_cast<std::size_t>(stream.shape.heads_per_kv)),
        kept_logits_(stream),
        watch_(cell.watch),
        next_row_(setting.prompt) {
    if (stored != nullptr) stored_.emplace(*stored, cell.algorithm->never_evicts(cell.params));
    if (setting.prompt > 0) algorithm_->extend(0, setting.prompt);
    algorithm_->finish_prompt();
  }

  // Rows of `block` in order; rows between them are fed unanswered. `decoded`: the same rows'
  // logits of decoded keys, null unless every held key is one.
  void advance(const RowBlock& block, const LogitBlock* decoded) {
    decoded_ = decoded;
    Estimator estimator(stored_ ? stored_->held() : stream_, stored_ ? cpu_kernels() : kernels_,
                        &block);
    for (std::size_t r = 0; r < block.rows().size(); ++r) {
      const Index row = block.rows()[r];
      feed_until(row);
      RowLogits logits;
      if (needs_.row_logits) {
        logits = row_logits(block.logits(), r);
        algorithm_->prepare(logits);
      }
      const bool scored = scored_ < setting_.rows.size() && setting_.rows[scored_] == row;
      observe(row, scored);
      if (scored) score(r, row, block, estimator);
      if (needs_.row_logits) algorithm_->answered(logits);
    }
    take_answers(estimator);
  }

  // `trivial`: of the stream; null if not finite.
  CellResult finish(const std::shared_ptr<const TrivialAnswers>& trivial) {
    const Index last_row = stream_.shape.tokens - 1;
    if (next_row_ <= last_row) {
      feed_until(last_row);
      observe(last_row, false);
    } else if (setting_.rows.empty() || setting_.rows.back() != last_row) {
      observe(last_row, false);  // all tokens are the prompt
    }
    CellResult result;
    result.metrics = errors_.metrics(stored_error_);
    result.undefined_rows = errors_.undefined_rows();
    if (setting_.keep_row_values) result.row_values = errors_.row_values();
    result.derived = algorithm_->derived();
    if (const auto promise = algorithm_->promise()) {
      result.derived.emplace_back("vacuous", is_vacuous(*promise, trivial.get()));
    }
    result.trivial = trivial;
    result.clusters = algorithm_->clusters();
    result.counters = algorithm_->counters();
    result.memory = memory_.report();
    result.traffic = traffic_.report();
    return result;
  }

 private:
  // The sketch as it answers row `row`.
  void observe(Index row, bool scored) {
    if (stored_) stored_->hold(algorithm_->sketch(), row);
    memory_.observe(algorithm_->sketch(), row, stored_ ? stored_->written() : KeptCounts{});
    if (watch_ != nullptr) watch_->kept(row, scored, algorithm_->sketch());
    if (!stored_ || row != stream_.shape.tokens - 1) return;
    stored_->read(algorithm_->sketch());
    const StoredErrors errors = stored_->errors(algorithm_->sketch());
    stored_error_ = {errors.keys, errors.values};
  }

  // Feeds the unscored rows before `row`, whose memory counts, and `row` itself.
  void feed_until(Index row) {
    while (next_row_ < row) {
      const Index last = std::min(next_row_ + KeptLogits::kRows, row);
      if (needs_.kept_tokens_only) kept_logits_.compute(algorithm_->sketch(), next_row_, last);
      for (; next_row_ < last; ++next_row_) {
        throw_if_stopped();
        algorithm_->extend(next_row_, next_row_ + 1);
        observe(next_row_, false);
        if (needs_.kept_tokens_only) algorithm_->answered(kept_logits_.row(next_row_));
      }
    }
    if (next_row_ > row) return;
    throw_if_stopped();
    algorithm_->extend(row, row + 1);
    ++next_row_;
  }

  RowLogits row_logits(const LogitBlock& block, std::size_t r) const {
    const Index heads_per_kv = stream_.shape.heads_per_kv;
    const auto query_index = static_cast<Index>(r) * heads_per_kv;
    RowLogits out;
    out.row = block.rows[r];
    out.lo = stream_.shape.first_visible(out.row);
    out.end = stream_.shape.visible_end(out.row);
    out.sinks = stream_.sinks.empty() ? nullptr : stream_.sinks.data();
    out.heads_per_kv = stream_.shape.heads_per_kv;
    out.x = block.logits.data() + query_index * block.tokens;
    out.e = block.exps.data() + query_index * block.tokens;
    out.max = block.max_logit.data() + query_index;
    out.stride = block.tokens;
    return out;
  }

  // Row `row`, which is number `r` of the block.
  void score(std::size_t r, Index row, const RowBlock& block, Estimator& estimator) {
    if (stored_) stored_->read(algorithm_->sketch());
    estimator.set_sketch(algorithm_->sketch(), stored_ ? &stored_->vectors() : nullptr);
    const auto heads_per_kv = static_cast<std::size_t>(stream_.shape.heads_per_kv);
    for (std::size_t g = 0; g < heads_per_kv; ++g) {
      const std::size_t query_index = scored_ * heads_per_kv + g;
      QueryRow query;
      query.query_index = static_cast<Index>(r * heads_per_kv + g);
      query.row = row;
      query.head = static_cast<int>(g);
      query.exact_output =
          reference_.exact.outputs.data() + static_cast<Index>(query_index) * stream_.shape.dv;
      query.exact_max = reference_.exact.max_logit[query_index];
      query.exact_normalizer = reference_.exact.normalizer[query_index];
      if (stored_) query = stored_->attended(with_logits(query, block.logits()), decoded_);
      estimator.enqueue(query);
      values_summed_[g] = estimator.values_summed(query.head);
    }
    traffic_.observe(algorithm_->sketch(), row, values_summed_, stored_ ? &*stored_ : nullptr);
    ++scored_;
    if (estimator.should_flush()) take_answers(estimator);
  }

  static QueryRow with_logits(QueryRow query, const LogitBlock& block) {
    query.x = block.logits.data() + query.query_index * block.tokens;
    query.e = block.exps.data() + query.query_index * block.tokens;
    query.max_logit = block.max_logit[static_cast<std::size_t>(query.query_index)];
    return query;
  }

  void take_answers(Estimator& estimator) {
    estimator.flush([&](const Answer& answer) {
      const Index heads_per_kv = stream_.shape.heads_per_kv;
      const Index r = answered_ / heads_per_kv;
      const Index g = answered_ % heads_per_kv;
      errors_.add(r, static_cast<int>(g), answer);
      if (watch_ != nullptr) watch_->answered(r, g, answer);
      ++answered_;
    });
  }

  const Stream& stream_;
  const ReplaySetting& setting_;
  const Kernels& kernels_;
  const StorageLayout layout_;
  std::optional<StoredCache> stored_;
  StoredError stored_error_;             // when row n - 1 is answered
  const LogitBlock* decoded_ = nullptr;  // of the current block
  Needs needs_;
  std::unique_ptr<Algorithm> algorithm_;
  const Reference& reference_;
  ErrorAccumulator errors_;
  MemoryMeter memory_;
  TrafficMeter traffic_;
  std::vector<Index> values_summed_;  // of the row, by query head
  KeptLogits kept_logits_;
  ReplayWatch* watch_;
  Index next_row_;
  std::size_t scored_ = 0;  // rows
  Index answered_ = 0;      // rows x query heads
};

// Rows whose logits are needed: the scored ones, or every decode row if an algorithm scores all
// tokens (one that scores kept tokens alone sees to the other rows by itself).
std::vector<Index> rows_to_visit(const Stream& stream, const ReplaySetting& setting,
                                 const std::vector<ReplayCell>& cells) {
  const bool every_row = std::any_of(cells.begin(), cells.end(), [](const ReplayCell& cell) {
    const Needs needs = cell.algorithm->needs(cell.params);
    return needs.row_logits && !needs.kept_tokens_only;
  });
  if (!every_row || !stream.shape.causal) return setting.rows;
  std::vector<Index> rows;
  for (Index i = std::max(setting.prompt, stream.shape.first_query); i < stream.shape.tokens; ++i) {
    rows.push_back(i);
  }
  return rows;
}

class Group {
 public:
  Group(const Stream& stream, const ReplaySetting& setting, const std::vector<ReplayCell>& cells,
        const Kernels& kernels, const std::function<void(std::size_t, CellResult&&)>& done)
      : stream_(stream),
        setting_(setting),
        cells_(cells),
        kernels_(kernels),
        done_(done),
        running_(cells.size()),
        seconds_(cells.size(), 0.0),
        reported_(cells.size(), 0) {}

  ReplayTiming run() {
    ReplayTiming timing;
    const auto start = Clock::now();
    const auto kept = kernels_.make_resident(stream_);
    try {
      reference_ = make_reference(kernels_, stream_, setting_.rows);
    } catch (const CellError& error) {
      fail_all(error.what());
      return timing;
    }
    timing.reference_seconds = seconds_since(start);
    score_trivial_answers();
    timing.metrics_seconds = seconds_since(start) - timing.reference_seconds;

    blocks_ = blocks_of(rows_to_visit(stream_, setting_, cells_));
    LogitBlock room = room_for_blocks();
    LogitBlock decoded_room;
    std::optional<RowBlock> block;
    std::size_t in_room = blocks_.size();  // number of the block whose logits are there
    for (const Pass& pass : passes()) {
      std::optional<StoredStream> stored;
      if (pass.storage != nullptr) {
        try {
          stored.emplace(stream_, setting_.prompt, *pass.storage, pass.seed);
        } catch (const CellError& error) {
          for (const std::size_t c : pass.cells) report(c, failure(error.what()));
          continue;
        }
      }
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        try {
          if (in_room != b) block.emplace(stream_, kernels_, blocks_[b], room);
        } catch (const CellError& error) {
          fail_all(error.what());
          return timing;
        }
        in_room = b;
        if (!has_shared_) {
          const auto shared_start = Clock::now();
          shared_ = compute_shared(
              {stream_, setting_.prompt, kernels_, &setting_.rows,
               block->rows() == setting_.rows ? &*block : nullptr, &reference_.value_spectral},
              cells_);
          has_shared_ = true;
          timing.shared_seconds = seconds_since(shared_start);
        }
        const LogitBlock* decoded = nullptr;
        if (stored && stored->keys().is_decoded_throughout()) {
          cpu_kernels().logits(stored->held(), blocks_[b], decoded_room);
          decoded = &decoded_room;
        }
        const bool is_last = b + 1 == blocks_.size();
        parallel_for(static_cast<Index>(pass.cells.size()), [&](Index i) {
          advance(pass.cells[static_cast<std::size_t>(i)], *block, stored ? &*stored : nullptr,
                  decoded, is_last);
        });
      }
    }
    return timing;
  }

 private:
  // Cells with the same storage, which share what it makes of the stream.
  struct Pass {
    const Storage* storage = nullptr;  // null: cells without one
    std::uint32_t seed = 0;            // of a storage that draws
    std::vector<std::size_t> cells;
  };

  std::vector<Pass> passes() const {
    std::vector<Pass> all;
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      const Storage* storage = cells_[c].storage.get();
      const std::uint32_t seed =
          storage != nullptr && storage->is_randomised() ? cells_[c].seed : 0;
      const auto same = std::find_if(all.begin(), all.end(), [&](const Pass& pass) {
        const bool equal = storage == nullptr || pass.storage == nullptr
                               ? storage == pass.storage
                               : *storage == *pass.storage;
        return equal && seed == pass.seed;
      });
      Pass& pass = same != all.end() ? *same : all.emplace_back(Pass{storage, seed, {}});
      pass.cells.push_back(c);
    }
    return all;
  }

  // Rows whose logits are in memory at one time.
  std::vector<std::vector<Index>> blocks_of(const std::vector<Index>& rows) const {
    const Index row_bytes = 16 * stream_.shape.heads_per_kv * stream_.shape.tokens;
    const Index at_once = std::max<Index>(1, kLogitBytes / std::max<Index>(1, row_bytes));
    std::vector<std::vector<Index>> blocks;
    for (auto first = rows.begin(); first != rows.end();) {
      const auto last = first + std::min<Index>(at_once, rows.end() - first);
      blocks.emplace_back(first, last);
      first = last;
    }
    return blocks;
  }

  // A block that need not grow: while it did, its old numbers would be kept together with the new
  // ones.
  LogitBlock room_for_blocks() const {
    std::size_t most = 0;
    for (const std::vector<Index>& rows : blocks_) {
      most = std::max(most, rows.size() * static_cast<std::size_t>(stream_.shape.heads_per_kv *
                                                                   stream_.shape.visible_end(
                                                                       rows.back())));
    }
    LogitBlock block;
    block.logits.reserve(most);
    block.exps.reserve(most);
    return block;
  }

  void score_trivial_answers() {
    std::optional<TrivialAnswers> answers = trivial_answers(stream_, reference_);
    if (!answers) return;
    trivial_ = std::make_shared<const TrivialAnswers>(std::move(*answers));
  }

  void advance(std::size_t c, const RowBlock& block, const StoredStream* stored,
               const LogitBlock* decoded, bool final_block) {
    if (reported_[c] != 0) return;
    const auto start = Clock::now();
    std::optional<CellResult> result = advanced(c, block, stored, decoded, final_block);
    seconds_[c] += seconds_since(start);
    if (!result) return;
    running_[c].reset();
    if (!result->failed) result->seconds = seconds_[c];
    report(c, std::move(*result));
  }

  // The cell's result once it has one.
  std::optional<CellResult> advanced(std::size_t c, const RowBlock& block,
                                     const StoredStream* stored, const LogitBlock* decoded,
                                     bool final_block) {
    try {
      if (!running_[c]) {
        const SharedResults* given = cells_[c].model_results;
        running_[c] =
            std::make_unique<Replayed>(stream_, setting_, cells_[c], kernels_,
                                       given != nullptr ? *given : shared_, reference_, stored);
      }
      running_[c]->advance(block, decoded);
      if (!final_block) return std::nullopt;
      return running_[c]->finish(trivial_);
    } catch (const CellError& error) {
      return failure(error.what());
    } catch (const std::bad_alloc&) {
      return failure(kNoMemoryForCell);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception&) {
      std::throw_with_nested(BugError("computing " + cell_text(cells_[c], stream_.id)));
    }
  }

  void fail_all(const std::string& reason) {
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      if (reported_[c] == 0) report(c, failure(reason));
    }
  }

  static CellResult failure(const std::string& reason) {
    CellResult result;
    result.failed = true;
    result.reason = reason;
    return result;
  }

  void report(std::size_t c, CellResult&& result) {
    reported_[c] = 1;
    const std::lock_guard<std::mutex> lock(done_mutex_);
    done_(c, std::move(result));
  }

  const Stream& stream_;
  const ReplaySetting& setting_;
  const std::vector<ReplayCell>& cells_;
  const Kernels& kernels_;
  const std::function<void(std::size_t, CellResult&&)>& done_;
  Reference reference_;
  std::shared_ptr<const TrivialAnswers> trivial_;
  std::vector<std::vector<Index>> blocks_;  // rows with logits
  SharedResults shared_;
  bool has_shared_ = false;
  std::vector<std::unique_ptr<Replayed>> running_;
  std::vector<double> seconds_;
  std::vector<char> reported_;
  std::mutex done_mutex_;
};

}  // namespace

ReplayTiming replay(const Stream& stream, const ReplaySetting& setting,
                    const std::vector<ReplayCell>& cells, const Kernels& kernels,
                    const std::function<void(std::size_t, CellResult&&)>& done) {
  return Group(stream, setting, cells, kernels, done).run();
}

}  // namespace kvbench
