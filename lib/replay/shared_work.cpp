#include "replay/shared_work.hpp"

#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "algorithms/accumulated_scores.hpp"
#include "core/error.hpp"
#include "core/parallel.hpp"

namespace kvbench {
namespace {

class SharedPieces {
 public:
  SharedPieces(const SharedSetting& setting, const std::vector<ReplayCell>& cells)
      : setting_(setting) {
    std::map<std::string, SharedWork> work;
    for (const ReplayCell& cell : cells) {
      for (SharedWork& piece : cell.algorithm->shared_work(cell.params, setting.stream.shape,
                                                           setting.prompt, cell.seed)) {
        work.emplace(piece.key, std::move(piece));
      }
    }
    for (auto& [key, piece] : work) {
      (piece.prompt_rule ? prompt_scores_ : others_).push_back(std::move(piece));
    }
  }

  SharedResults compute() {
    const Index scores = prompt_scores_.empty() ? 0 : 1;  // all of them at once
    parallel_for(scores + static_cast<Index>(others_.size()), [&](Index w) {
      if (w < scores) {
        compute_prompt_scores();
        return;
      }
      const SharedWork& piece = others_[static_cast<std::size_t>(w - scores)];
      keep(piece.key, [&] { return piece.compute(setting_); });
    });
    return std::move(results_);
  }

 private:
  void compute_prompt_scores() {
    std::vector<ScoreRule> rules;
    for (const SharedWork& piece : prompt_scores_) {
      rules.push_back(piece.prompt_rule(setting_.stream));
    }
    std::vector<ScoreSums> sums;
    const std::optional<std::string> failure = failure_of("scores of the prompt", [&] {
      sums = setting_.kernels.score_sums_by(setting_.stream, 0, setting_.prompt, rules);
    });
    for (std::size_t k = 0; k < rules.size(); ++k) {
      keep(prompt_scores_[k].key, [&] {
        if (failure) throw CellError(*failure);
        check_prompt_scores(sums[k]);
        return std::any(std::move(sums[k]));
      });
    }
  }

  void keep(const std::string& key, const std::function<std::any()>& compute) {
    std::any result;
    const std::optional<std::string> failure = failure_of(key, [&] { result = compute(); });
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure) {
      results_.fail(key, *failure);
    } else {
      results_.put(key, std::move(result));
    }
  }

  // Why `compute` failed for its cells; a bug in it is thrown.
  std::optional<std::string> failure_of(const std::string& key,
                                        const std::function<void()>& compute) const {
    try {
      compute();
      return std::nullopt;
    } catch (const CellError& error) {
      return error.what();
    } catch (const std::bad_alloc&) {
      return kNoMemoryForCell;
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception&) {
      const StreamId& stream = setting_.stream.id;
      std::throw_with_nested(BugError("computing what cells share, \"" + key + "\", of sequence " +
                                      stream.sequence + ", layer " + std::to_string(stream.layer) +
                                      ", KV head " + std::to_string(stream.kv_head)));
    }
  }

  SharedSetting setting_;
  std::vector<SharedWork> prompt_scores_;
  std::vector<SharedWork> others_;
  SharedResults results_;
  std::mutex mutex_;
};

}  // namespace

SharedResults compute_shared(const SharedSetting& setting, const std::vector<ReplayCell>& cells) {
  return SharedPieces(setting, cells).compute();
}

}  // namespace kvbench
