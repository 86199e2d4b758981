#include "sweep/stored_budget.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/memory_budget.hpp"

namespace kvbench {

std::variant<Params, std::string> solve_stored_memory(const AlgorithmDescription& algorithm,
                                                      const Params& params, const Storage* storage,
                                                      const StreamShape& shape, Index prompt,
                                                      int element_bytes) {
  const StorageLayout layout(storage, shape, prompt, element_bytes);
  const bool only_appends = algorithm.only_appends(params) && !shape.slides();
  if (!only_appends && !layout.on_arrival()) {
    return fmt::format(
        "memory cannot be solved for {}: which of its tokens {} has written depends on the data, "
        "because it drops tokens while it decodes; give a number of tokens",
        algorithm.id, storage_text(*storage));
  }
  const auto bytes = [&](const KeptCounts& kept) {
    if (!only_appends) return layout.most_bytes(kept, kept);
    const Index decoded = shape.tokens - prompt;
    KeptCounts of_prompt = kept;
    of_prompt.keys = std::max<Index>(0, kept.keys - decoded);
    of_prompt.values = std::max<Index>(0, kept.values - decoded);
    return layout.most_bytes(kept, of_prompt);
  };
  const auto skip = [&](const Params& solved) {
    const auto why = reason_to_skip(algorithm, solved, shape, prompt);
    return why || storage == nullptr ? why
                                     : reason_to_skip(*storage, algorithm, solved, shape, prompt);
  };
  return solve_memory(algorithm, params, shape, prompt, element_bytes, bytes, layout.reach(), skip);
}

}  // namespace kvbench
