#include "replay/shared_work.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/parallel.hpp"

namespace kvbench {
namespace {

class SharedPieces {
 public:
  SharedPieces(const SharedSetting& setting, const std::vector<ReplayCell>& cells)
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
      std::vector<WorkOutcome> outcomes;
      try {
        outcomes = pieces.front().is_batched() ? pieces.front().compute_all(setting_, pieces)
                                               : one(pieces.front());
      } catch (const std::exception& error) {
        outcomes.assign(pieces.size(), {nullptr, error.what()});
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        results_.put(pieces[k].key(), std::move(outcomes[k]));
      }
    });
    return std::move(results_);
  }

 private:
  std::vector<WorkOutcome> one(const SharedWork& piece) const {
    return {{piece.compute(setting_), ""}};
  }

  SharedSetting setting_;
  std::vector<std::vector<SharedWork>> tasks_;
  SharedResults results_;
  std::mutex mutex_;
};

}  // namespace

SharedResults compute_shared(const SharedSetting& setting, const std::vector<ReplayCell>& cells) {
  return SharedPieces(setting, cells).compute();
}

}  // namespace kvbench
