// Selection by what the last prompt rows attend to: the mechanism of snapkv and its relatives.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/group_rule.hpp"

namespace kvbench {

enum class Pool { kMax, kAverage };
enum class Reduce { kSum, kMean, kMax };                  // over the rows of the window
enum class PoolOrder { kGroupThenPool, kPoolThenGroup };  // group: over the query heads
enum class RowWeight { kEqual, kVisible };                // factor of a row's scores

struct ObservationParameters {
  TokenCount budget;
  Index window = 0;
  Index kernel = 7;
  Pool pool = Pool::kMax;
  GroupRule group = GroupRule::kMean;
  Reduce reduce = Reduce::kSum;
  PoolOrder order = PoolOrder::kGroupThenPool;
  RowWeight row_weight = RowWeight::kEqual;

  auto operator<=>(const ObservationParameters&) const = default;
};

// Shared work: softmax scores of the last `window` prompt rows, summed over them, or the largest.
// Throws CellError if logits overflow.
struct WindowScores {
  Index window = 0;
  bool largest = false;
  RowWeight row_weight = RowWeight::kEqual;

  explicit WindowScores(const ObservationParameters& p)
      : window(p.window), largest(p.reduce == Reduce::kMax), row_weight(p.row_weight) {}

  using Result = ScoreSums;
  Result compute(const SharedContext& context) const;
  double scratch(const StreamShape& shape, Index prompt) const;
  auto operator<=>(const WindowScores&) const = default;

 private:
  void add_row(const Stream& stream, const LogitBlock& block, std::size_t r, Result& scores) const;
};

// Pools with stride 1 and an odd kernel: `max` ignores what lies outside, `avg` counts it as zero.
std::vector<double> pooled(const std::vector<double>& scores, Index kernel, Pool pool);

// The scores of the middle's tokens in `sums`, combined over the group and pooled, in the order of
// `p.order`.
std::vector<double> observed_scores(const ObservationParameters& p, const ScoreSums& sums,
                                    PromptRange middle);

// Number of tokens that pyramidkv selects in a layer where `mean` is the mean over layers: see
// pyramidkv.cpp.
Index pyramid_selected(Index mean, Index window, Index beta, const StreamShape& shape, int layer,
                       Index prompt);

// budget, window, kernel, pool; `group` comes last, after what a method adds.
std::vector<Field<ObservationParameters>> observation_fields();
// reduce, order, row_weight; behind all others.
std::vector<Field<ObservationParameters>> observation_variant_fields();

// Scores of the last `window` prompt rows, summed, combined over the group and pooled along the
// tokens before them, or a variant of it; the best `selected` stay besides those last rows.
class ObservationWindow final : public CompressOnce {
 public:
  ObservationWindow(const ObservationParameters& p, const CellContext& context, Index selected);

  Derived derived() const override;
  std::vector<double> scores(PromptRange middle) const override {
    return observed_scores(p_, context_.shared.get(WindowScores(p_)), middle);
  }
  Index selected() const override { return selected_; }
  static std::vector<DerivedKey> derived_keys() {
    return {{"selected", "tokens of the prompt before the window that are kept"}};
  }

 protected:
  void compress_middle(PromptRange middle) override;

 private:
  ObservationParameters p_;
  Index selected_;
};

// Error of a pooling kernel; none if it is odd.
std::optional<std::pair<std::string, std::string>> even_kernel(Index kernel);

// Why a method that keeps a window of last rows is skipped: a budget within the window.
std::optional<std::string> within_window(Index budget, Index window);

// Functions of AlgorithmDescription that these methods have in common.
std::optional<std::pair<std::string, std::string>> invalid_observation(
    const ObservationParameters& p);
std::optional<std::string> cannot_observe(const ObservationParameters& p, const StreamShape& shape,
                                          Index prompt);
BudgetParts observation_parts(const ObservationParameters& p, const StreamShape& shape,
                              Index prompt);
std::vector<SharedWork> observation_work(const ObservationParameters& p, const StreamShape& shape,
                                         Index prompt, std::uint32_t seed);

}  // namespace kvbench
