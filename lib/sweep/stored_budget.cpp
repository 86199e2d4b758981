#include "sweep/stored_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "algorithms/memory_budget.hpp"

namespace kvbench {
namespace {

// Bytes of what is kept, in a storage; `known`: whether shape, prompt and parameters decide them.
class StoredBytes {
 public:
  StoredBytes(const AlgorithmDescription& algorithm, const Params& params, const Storage* storage,
              const StreamShape& shape, Index prompt, int element_bytes)
      : layout_(storage, shape, prompt, element_bytes),
        decoded_(shape.tokens - prompt),
        only_appends_(algorithm.only_appends(params) && !shape.slides()) {}

  bool known() const { return only_appends_ || layout_.on_arrival(); }
  Index reach() const { return layout_.reach(); }
  Index operator()(const KeptCounts& kept) const {
    if (!only_appends_) return layout_.most_bytes(kept, kept);
    KeptCounts of_prompt = kept;
    of_prompt.keys = std::max<Index>(0, kept.keys - decoded_);
    of_prompt.values = std::max<Index>(0, kept.values - decoded_);
    return layout_.most_bytes(kept, of_prompt);
  }

 private:
  StorageLayout layout_;
  Index decoded_;
  bool only_appends_;
};

// Whether the data decide how many values of its own are stored next to keys that hold the tokens'
// values.
bool keeps_values_beside_keys(const AlgorithmDescription& algorithm, const Params& params,
                              const StreamShape& shape) {
  return shape.value_in_key && algorithm.makes_values(params);
}

}  // namespace

std::variant<Params, std::string> solve_stored_memory(const AlgorithmDescription& algorithm,
                                                      const Params& params, const Storage* storage,
                                                      const StreamShape& shape, Index prompt,
                                                      int element_bytes) {
  const StoredBytes bytes(algorithm, params, storage, shape, prompt, element_bytes);
  if (!bytes.known()) {
    return fmt::format(
        "memory cannot be solved for {}: which of its tokens {} has written depends on the data, "
        "because it drops tokens while it decodes; give a number of tokens",
        algorithm.id, storage_text(*storage));
  }
  if (keeps_values_beside_keys(algorithm, params, shape)) {
    return fmt::format(
        "memory cannot be solved for {}: values are columns of the keys, and how many values it "
        "makes and keeps besides depends on the data; give a number of tokens",
        algorithm.id);
  }
  const auto skip = [&](const Params& solved) {
    const auto why = reason_to_skip(algorithm, solved, shape, prompt);
    return why || storage == nullptr ? why
                                     : reason_to_skip(*storage, algorithm, solved, shape, prompt);
  };
  return solve_memory(algorithm, params, shape, prompt, element_bytes, std::cref(bytes),
                      bytes.reach(), skip);
}

std::optional<double> known_memory(const AlgorithmDescription& algorithm, const Params& params,
                                   const Storage* storage, const StreamShape& shape, Index prompt,
                                   int element_bytes) {
  if (!algorithm.most_kept || asks_for_memory(params)) return std::nullopt;
  if (keeps_values_beside_keys(algorithm, params, shape)) return std::nullopt;
  // Where an algorithm refuses a memory to be solved, its parameters do not decide what it keeps.
  for (const Parameter& parameter : algorithm.parameters) {
    if (!parameter.takes_memory || params.find(parameter.name) == nullptr) continue;
    Params with_budget = params;
    with_budget.set(parameter.name, MemoryBudget{});
    if (algorithm.validate(with_budget)) return std::nullopt;
  }
  const StoredBytes bytes(algorithm, params, storage, shape, prompt, element_bytes);
  const auto kept = algorithm.most_kept(params, shape, prompt);
  if (!kept || !bytes.known()) return std::nullopt;
  return bytes(*kept) / static_cast<double>(exact_bytes(shape, element_bytes));
}

}  // namespace kvbench
