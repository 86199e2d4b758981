#include "replay/shared_work.hpp"

#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

// Does it, and returns why the cells that need it fail, "" where they do not. A bug is thrown.
template <class Work>
std::string failure_of(const SharedContext& setting, const WorkKind& kind, const Work& work) {
  try {
    work();
    return "";
  } catch (const CellError& error) {
    return error.what();
  } catch (const std::bad_alloc&) {
    return kNoMemoryForCell;
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception&) {
    const StreamId& stream = setting.stream.id;
    std::throw_with_nested(BugError(
        "computing what cells share, " + kind.name() + ", of sequence " + stream.sequence +
        ", layer " + std::to_string(stream.layer) + ", KV head " + std::to_string(stream.kv_head)));
  }
}

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
    // Pieces of a batched kind are neighbours, and are one task; the others are one each.
    for (auto& [key, piece] : pieces) {
      const bool joins =
          piece.is_batched() && !tasks_.empty() && tasks_.back().front().key().kind() == key.kind();
      if (!joins) tasks_.emplace_back();
      tasks_.back().push_back(std::move(piece));
    }
  }

  SharedResults compute() {
    parallel_for(std::ssize(tasks_), [&](Index t) {
      const std::vector<SharedWork>& pieces = tasks_[t];
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
    std::vector<WorkOutcome> outcomes;
    const std::string failure = failure_of(setting_, pieces.front().key().kind(), [&] {
      outcomes = pieces.front().is_batched() ? pieces.front().compute_all(setting_, pieces)
                                             : one(pieces.front());
    });
    if (failure.empty()) return outcomes;
    return std::vector<WorkOutcome>(pieces.size(), {nullptr, failure});
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

GatheredRows::GatheredRows(const SharedContext& setting, const std::vector<ReplayCell>& cells)
    : setting_(setting) {
  for (std::size_t c = 0; c < cells.size(); ++c) {
    for (SharedWork& work : cells[c].algorithm->shared_work(cells[c].params, setting.stream.shape,
                                                            setting.prompt, cells[c].seed)) {
      if (!work.gathers_rows()) continue;
      const WorkKey key = work.key();
      pieces_.emplace(key, Piece{std::move(work), {}}).first->second.cells.push_back(c);
    }
  }
}

std::vector<GatheredRows::Failure> GatheredRows::add(const RowBlock& block,
                                                     SharedResults& results) {
  std::vector<Piece*> pieces;
  for (auto& [key, piece] : pieces_) pieces.push_back(&piece);
  std::vector<std::string> failures(pieces.size());
  parallel_for(std::ssize(pieces), [&](Index i) {
    const SharedWork& work = pieces[i]->work;
    failures[i] =
        failure_of(setting_, work.key().kind(), [&] { results.add_rows(work, setting_, block); });
  });
  std::vector<Failure> failed;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (failures[i].empty()) continue;
    for (const std::size_t c : pieces[i]->cells) failed.emplace_back(c, failures[i]);
    const WorkKey key = pieces[i]->work.key();
    pieces_.erase(key);
  }
  return failed;
}

}  // namespace kvbench
