#include "algorithms/registry.hpp"

#include <algorithm>

namespace kvbench {

// Each is defined in the file named for it.
AlgorithmDescription describe_exact();
AlgorithmDescription describe_window();
AlgorithmDescription describe_dilated_window();
AlgorithmDescription describe_streaming_llm();
AlgorithmDescription describe_h2o();
AlgorithmDescription describe_keyformer();
AlgorithmDescription describe_snapkv();
AlgorithmDescription describe_pyramidkv();
AlgorithmDescription describe_softmax_balance();
AlgorithmDescription describe_balancekv();
AlgorithmDescription describe_balancekv_prefill();
AlgorithmDescription describe_key_attention();
AlgorithmDescription describe_uniform();
AlgorithmDescription describe_kcenter();
AlgorithmDescription describe_subgen();
AlgorithmDescription describe_oracle_topk();

const std::vector<AlgorithmDescription>& all_algorithms() {
  static const std::vector<AlgorithmDescription> algorithms = {
      describe_exact(),           describe_window(),        describe_dilated_window(),
      describe_streaming_llm(),   describe_key_attention(), describe_h2o(),
      describe_keyformer(),       describe_snapkv(),        describe_pyramidkv(),
      describe_uniform(),         describe_kcenter(),       describe_subgen(),
      describe_softmax_balance(), describe_balancekv(),     describe_balancekv_prefill(),
      describe_oracle_topk(),
  };
  return algorithms;
}

const AlgorithmDescription* find_algorithm(const std::string& id) {
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    const auto& aliases = algorithm.aliases;
    if (algorithm.id == id || std::find(aliases.begin(), aliases.end(), id) != aliases.end()) {
      return &algorithm;
    }
  }
  return nullptr;
}

std::optional<std::string> reason_to_skip(const AlgorithmDescription& algorithm,
                                          const Params& params, const StreamShape& shape,
                                          Index prompt) {
  if (algorithm.needs(params).prompt_queries && shape.first_query > 0) {
    return algorithm.id + " scores every row from 0 on, and the dump holds queries of rows " +
           std::to_string(shape.first_query) + " to " + std::to_string(shape.tokens - 1) + " only";
  }
  return algorithm.skip_reason(params, shape, prompt);
}

}  // namespace kvbench
