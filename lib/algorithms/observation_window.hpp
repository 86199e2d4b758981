// Selection by what the last prompt rows attend to: the mechanism of snapkv and pyramidkv.
#pragma once

#include "algorithms/compress_once.hpp"

namespace kvbench {

// Scores of the last `window` prompt rows, summed, combined over the group and pooled along the
// tokens before them; the best `selected` stay beside those last rows.
class ObservationWindow final : public CompressOnce {
 public:
  ObservationWindow(const Setting& setting, Index selected);

  Derived derived() const override;

 protected:
  void compress_middle(PromptRange middle) override;

 private:
  Index selected_;
};

// Parameters budget, window, kernel, pool and group.
std::vector<Parameter> observation_window_parameters(Index window);

// Everything of the description but id, texts, parameters and factory.
void describe_observation_window(AlgorithmDescription& description);

}  // namespace kvbench
