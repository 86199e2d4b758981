#include "replay/replay.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "kernels/host_rows.hpp"
#include "kernels/row_block.hpp"
#include "kernels/weight_table.hpp"
#include "metrics/reference.hpp"
#include "metrics/trivial_answers.hpp"
#include "replay/cell_replay.hpp"
#include "replay/shared_work.hpp"
#include "replay/visited_rows.hpp"
#include "storage/stored_stream.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "h2o budget=8 group=sum, seed 3, of sequence a, layer 0, KV head 1"
std::string cell_text(const ReplayCell& cell, const StreamId& stream) {
  std::string text = cell.algorithm->id;
  for (const auto& [name, value] : cell.params->entries()) {
    text += " " + name + "=" + to_string(value);
  }
  return text + ", seed " + std::to_string(cell.seed) + ", of sequence " + stream.sequence +
         ", layer " + std::to_string(stream.layer) + ", KV head " + std::to_string(stream.kv_head);
}

class Group {
 public:
  Group(const Stream& stream, const ReplaySetting& setting, const std::vector<ReplayCell>& cells,
        const Kernels& kernels, const std::function<void(std::size_t, CellResult&&)>& done,
        ReplayRoom& room)
      : stream_(stream),
        setting_(setting),
        cells_(cells),
        kernels_(kernels),
        done_(done),
        room_(room),
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
    if (setting_.keep_outputs) {
      exact_outputs_ = std::make_shared<const std::vector<double>>(reference_.exact.outputs.begin(),
                                                                   reference_.exact.outputs.end());
    }
    timing.reference_seconds = seconds_since(start);
    score_trivial_answers();
    timing.metrics_seconds = seconds_since(start) - timing.reference_seconds;

    const bool every_row = std::any_of(cells_.begin(), cells_.end(), [](const ReplayCell& cell) {
      return visits_every_row(cell.algorithm->needs(cell.params));
    });
    blocks_ = blocks_of(visited_rows(stream_.shape, setting_.prompt, setting_.rows, every_row));
    make_room();
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
        const auto logits_start = Clock::now();
        try {
          if (in_room != b) block.emplace(stream_, kernels_, blocks_[b], room_.block);
        } catch (const CellError& error) {
          fail_all(error.what());
          return timing;
        }
        in_room = b;
        timing.logits_seconds += seconds_since(logits_start);
        if (b == blocks_shared_) {
          const auto shared_start = Clock::now();
          share(*block);
          timing.shared_seconds += seconds_since(shared_start);
        }
        const LogitBlock* decoded = nullptr;
        if (stored && stored->keys().is_decoded_throughout()) {
          cpu_kernels().logits(stored->held(), blocks_[b], room_.decoded);
          decoded = &room_.decoded;
        }
        const bool is_last = b + 1 == blocks_.size();
        parallel_for(std::ssize(pass.cells), [&](Index i) {
          advance(pass.cells[i], *block, stored ? &*stored : nullptr, decoded, is_last);
        });
      }
    }
    return timing;
  }

 private:
  // Cells with the same storage, which share what it makes of the stream.
  struct Pass {
    const Storage* storage = nullptr;  // null: cells without one
    std::uint32_t seed = 0;            // seed of a storage that draws
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

  // Computes the cells' shared work for the next block; before the first block also the work that
  // does not depend on rows.
  void share(const RowBlock& block) {
    if (blocks_shared_++ == 0) {
      const SharedContext context = {stream_, setting_.prompt, kernels_, &setting_.rows,
                                     &reference_.value_spectral};
      shared_ = compute_shared(context, cells_);
      gathered_.emplace(context, cells_);
    }
    for (const auto& [c, reason] : gathered_->add(block, shared_)) {
      running_[c].reset();
      if (reported_[c] == 0) report(c, failure(reason));
    }
  }

  // Rows whose logits are in memory at one time.
  std::vector<std::vector<Index>> blocks_of(const std::vector<Index>& rows) const {
    const Index row_bytes = BlockRoom::kBytes * stream_.shape.heads_per_kv * stream_.shape.tokens;
    const Index bytes = std::min(setting_.logit_bytes, most_logit_bytes(cells_.size()));
    Index at_once = std::max<Index>(1, bytes / std::max<Index>(1, row_bytes));
    // A part of a group of questions takes as long to answer as a whole one.
    const Index whole =
        std::lcm(WeightTable::kPlaces, stream_.shape.heads_per_kv) / stream_.shape.heads_per_kv;
    if (at_once > whole) at_once -= at_once % whole;
    std::vector<std::vector<Index>> blocks;
    for (auto first = rows.begin(); first != rows.end();) {
      const auto last = first + std::min<Index>(at_once, rows.end() - first);
      blocks.emplace_back(first, last);
      first = last;
    }
    return blocks;
  }

  // A block that need not grow: while it did, its old numbers would be kept together with the new
  // ones. Room that is larger than needed is not kept either.
  void make_room() {
    Index queries = 0;
    Index tokens = 0;
    for (const std::vector<Index>& rows : blocks_) {
      queries = std::max(queries, std::ssize(rows) * stream_.shape.heads_per_kv);
      tokens = std::max(tokens, stream_.shape.visible_end(rows.back()));
    }
    const BlockRoom& held = room_.block;
    const std::size_t numbers = queries * tokens;
    const std::size_t abreast = numbers_abreast(queries, tokens);
    if (held.logits.logits.capacity() == numbers && held.exps.capacity() == abreast) return;
    room_ = {};
    room_.block.reserve(queries, tokens);
  }

  void score_trivial_answers() {
    try {
      trivial_ = std::make_shared<const TrivialAnswers>(trivial_answers(stream_, reference_));
    } catch (const CellError&) {  // null says that their sum is too large for a double
    }
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
    if (result->outputs) result->outputs->exact = exact_outputs_;
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
            std::make_unique<CellReplay>(stream_, setting_, cells_[c], kernels_,
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
  ReplayRoom& room_;
  Reference reference_;
  std::shared_ptr<const TrivialAnswers> trivial_;
  std::shared_ptr<const std::vector<double>> exact_outputs_;  // null unless they are kept
  std::vector<std::vector<Index>> blocks_;                    // rows with logits
  SharedResults shared_;
  std::optional<GatheredRows> gathered_;
  std::size_t blocks_shared_ = 0;  // number of blocks with shared work done
  std::vector<std::unique_ptr<CellReplay>> running_;
  std::vector<double> seconds_;
  std::vector<char> reported_;
  std::mutex done_mutex_;
};

}  // namespace

ReplayTiming replay(const Stream& stream, const ReplaySetting& setting,
                    const std::vector<ReplayCell>& cells, const Kernels& kernels,
                    const std::function<void(std::size_t, CellResult&&)>& done, ReplayRoom& room) {
  return Group(stream, setting, cells, kernels, done, room).run();
}

ReplayTiming replay(const Stream& stream, const ReplaySetting& setting,
                    const std::vector<ReplayCell>& cells, const Kernels& kernels,
                    const std::function<void(std::size_t, CellResult&&)>& done) {
  ReplayRoom room;
  return replay(stream, setting, cells, kernels, done, room);
}

}  // namespace kvbench
