#include "algorithms/registry.hpp"

#include <algorithm>

namespace kvbench {

// One line per algorithm, in the order of `kvbench list algorithms`: methods::<id>::describe() is
// defined in methods/<id>.cpp.
#define KVBENCH_ALGORITHMS(ALGORITHM) \
  ALGORITHM(exact)                    \
  ALGORITHM(window)                   \
  ALGORITHM(dilated_window)           \
  ALGORITHM(streaming_llm)            \
  ALGORITHM(key_attention)            \
  ALGORITHM(h2o)                      \
  ALGORITHM(keyformer)                \
  ALGORITHM(tova)                     \
  ALGORITHM(roco)                     \
  ALGORITHM(caote)                    \
  ALGORITHM(rkv)                      \
  ALGORITHM(snapkv)                   \
  ALGORITHM(pyramidkv)                \
  ALGORITHM(adakv)                    \
  ALGORITHM(criticalkv)               \
  ALGORITHM(cake)                     \
  ALGORITHM(lava)                     \
  ALGORITHM(laprox)                   \
  ALGORITHM(chunkkv)                  \
  ALGORITHM(kvzip)                    \
  ALGORITHM(knorm)                    \
  ALGORITHM(keydiff)                  \
  ALGORITHM(lagkv)                    \
  ALGORITHM(expected_attention)       \
  ALGORITHM(curdkv)                   \
  ALGORITHM(capkv)                    \
  ALGORITHM(qfilters)                 \
  ALGORITHM(triattention)             \
  ALGORITHM(compactor)                \
  ALGORITHM(uniform)                  \
  ALGORITHM(kcenter)                  \
  ALGORITHM(subgen)                   \
  ALGORITHM(softmax_balance)          \
  ALGORITHM(balancekv)                \
  ALGORITHM(balancekv_prefill)        \
  ALGORITHM(thinformer)               \
  ALGORITHM(cam)                      \
  ALGORITHM(d2o)                      \
  ALGORITHM(merge_cosine)             \
  ALGORITHM(kf_merge)                 \
  ALGORITHM(attention_matching)       \
  ALGORITHM(grkv)                     \
  ALGORITHM(wildcat)                  \
  ALGORITHM(performer)                \
  ALGORITHM(quest)                    \
  ALGORITHM(sparq)                    \
  ALGORITHM(hsa)                      \
  ALGORITHM(kascade)                  \
  ALGORITHM(loki)                     \
  ALGORITHM(magicpig)                 \
  ALGORITHM(vattention)               \
  ALGORITHM(hyperattention)           \
  ALGORITHM(kdeformer)                \
  ALGORITHM(blasst)                   \
  ALGORITHM(xattention)               \
  ALGORITHM(flexprefill)              \
  ALGORITHM(minference)               \
  ALGORITHM(oracle_topk)              \
  ALGORITHM(given)

#define KVBENCH_DECLARE(id)        \
  namespace methods::id {          \
  AlgorithmDescription describe(); \
  }
KVBENCH_ALGORITHMS(KVBENCH_DECLARE)
#undef KVBENCH_DECLARE

const std::vector<AlgorithmDescription>& all_algorithms() {
#define KVBENCH_DESCRIBE(id) methods::id::describe(),
  static const std::vector<AlgorithmDescription> algorithms = {
      KVBENCH_ALGORITHMS(KVBENCH_DESCRIBE)};
#undef KVBENCH_DESCRIBE
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
    return algorithm.id + " needs queries of all rows, but the dump has only rows " +
           std::to_string(shape.first_query) + " to " + std::to_string(shape.tokens - 1);
  }
  if (shape.alibi && !algorithm.limits.alibi.empty()) {
    return "the layer biases its logits by distance (ALiBi), and " + algorithm.limits.alibi;
  }
  if (!shape.causal) {
    const std::string where = "every row of the layer sees every token, and ";
    if (!algorithm.limits.all_tokens.empty()) return where + algorithm.limits.all_tokens;
    if (!algorithm.only_appends(params) && !algorithm.never_evicts(params)) {
      return where + algorithm.id + " drops tokens from row to row";
    }
  }
  return algorithm.skip_reason(params, shape, prompt);
}

}  // namespace kvbench
