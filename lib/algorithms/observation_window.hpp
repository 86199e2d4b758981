// Selection by what the last prompt rows attend to: the mechanism of snapkv and pyramidkv.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/compress_once.hpp"
#include "algorithms/group_rule.hpp"

namespace kvbench {

enum class Pool { kMax, kAverage };

struct ObservationParameters {
  TokenCount budget;
  Index window = 0;
  Index kernel = 7;
  Pool pool = Pool::kMax;
  GroupRule group = GroupRule::kMean;
};

// budget, window, kernel, pool; `group` comes last, after what a method adds.
std::vector<Field<ObservationParameters>> observation_fields();

// Scores of the last `window` prompt rows, summed, combined over the group and pooled along the
// tokens before them; the best `selected` stay beside those last rows.
class ObservationWindow final : public CompressOnce {
 public:
  ObservationWindow(const ObservationParameters& p, const CellContext& context, Index selected);

  Derived derived() const override;
  static std::vector<DerivedKey> derived_keys() {
    return {{"selected", "tokens of the prompt before the window that are kept"}};
  }

 protected:
  void compress_middle(PromptRange middle) override;

 private:
  ObservationParameters p_;
  Index selected_;
};

// What snapkv and pyramidkv have in common: functions of AlgorithmDescription.
std::optional<std::pair<std::string, std::string>> invalid_observation(
    const ObservationParameters& p);
std::optional<std::string> cannot_observe(const ObservationParameters& p, const StreamShape& shape,
                                          Index prompt);
std::vector<SharedWork> observation_work(const ObservationParameters& p, const StreamShape& shape,
                                         Index prompt, std::uint32_t seed);

}  // namespace kvbench
