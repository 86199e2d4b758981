#include "replay/shared_work.hpp"

#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/parallel.hpp"

namespace kvbench {
namespace {

class SharedPieces {
 public:
  SharedPieces(const SharedContext& setting, const std::vector<ReplayCell>& cells)
      : setting_(setting) {
    std::map<WorkKey, SharedWork> pieces;
    for (const ReplayCell& cell : cells) {
      for (SharedWork& piece : cell.algorithm->shared_work(cell.params, setting.stream.shape,
                                                           setting.prompt, cell.seed)) {
        const WorkKey key = piece.key();
        pieces.emplace(key, std::move(piece));
      }
    }
    // Pieces of a batched kind stand side by side, and are one task; the others are one each.
    for (auto& [key, piece] : pieces) {
      const bool joins =
          piece.is_batched() && !tasks_.empty() && tasks_.back().front().key().kind() == key.kind();
      if (!joins) tasks_.emplace_back();
      tasks_.back().push_back(std::move(piece));
    }
  }

  SharedResults compute() {
    parallel_for(static_cast<Index>(tasks_.size()), [&](Index t) {
      const std::vector<SharedWork>& pieces = tasks_[static_cast<std::size_t>(t)];
      std::vector<WorkOutcome> outcomes = outcomes_of(pieces);
      const std::lock_guard<std::mutex> lock(mutex_);
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        results_.put(pieces[k].key(), std::move(outcomes[k]));
      }
    });
    return std::move(results_);
  }

 private:
  // A result for each, or why its cells fail; a bug in the work is thrown.
  std::vector<WorkOutcome> outcomes_of(const std::vector<SharedWork>& pieces) const {
    try {
      return pieces.front().is_batched() ? pieces.front().compute_all(setting_, pieces)
                                         : one(pieces.front());
    } catch (const CellError& error) {
      return std::vector<WorkOutcome>(pieces.size(), {nullptr, error.what()});
    } catch (const std::bad_alloc&) {
      return std::vector<WorkOutcome>(pieces.size(), {nullptr, kNoMemoryForCell});
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception&) {
      const StreamId& stream = setting_.stream.id;
      std::throw_with_nested(BugError("computing what cells share, " +
                                      pieces.front().key().kind().name() + ", of sequence " +
                                      stream.sequence + ", layer " + std::to_string(stream.layer) +
                                      ", KV head " + std::to_string(stream.kv_head)));
    }
  }

  std::vector<WorkOutcome> one(const SharedWork& piece) const {
    return {{piece.compute(setting_), ""}};
  }

  SharedContext setting_;
  std::vector<std::vector<SharedWork>> tasks_;
  SharedResults results_;
  std::mutex mutex_;
};

}  // namespace

SharedResults compute_shared(const SharedContext& setting, const std::vector<ReplayCell>& cells) {
  return SharedPieces(setting, cells).compute();
}

}  // namespace kvbench
