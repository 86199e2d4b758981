#include "support/kernel_contracts.hpp"

#include "support/kernel_checks.hpp"

namespace kvbench::test {

const std::vector<KernelContract>& kernel_contracts() {
  static const std::vector<KernelContract> contracts = {
      {"exact attention is the CPU's within 1e-9", check_exact_attention, {"exact attention"}},
      {"logits are the CPU's bit by bit", check_logits, {"logits"}},
      {"answers of held rows are those by the CPU's logits, bit by bit",
       check_resident_rows,
       {"answers of resident rows", "masses of resident rows"},
       true},
      {"score sums are the CPU's bit by bit", check_score_sums, {"score sums"}},
      {"clusterings are the CPU's", check_clusters, {"clusterings"}},
      {"centres are the CPU's", check_centers, {"centres"}},
      {"value norms are the CPU's within 1e-9", check_value_norms, {"value norms"}},
      {"walks are the CPU's bit by bit", check_walks, {"walks", "walks by resident matrices"}},
      {"weighted sums of values are the CPU's bit by bit", check_weighted_values, {"answers"}},
      {"a stream that is held gives what it gives without, and none is served stale",
       check_resident_streams},
      {"two calls give the same bits", check_determinism},
  };
  return contracts;
}

}  // namespace kvbench::test
