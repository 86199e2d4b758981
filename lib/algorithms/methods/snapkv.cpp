// snapkv: at the end of the prompt, keep its last `window` tokens and those tokens before them that
// these rows attend to most, after pooling along the sequence.
//
// Source: SnapKV (Li et al.), a baseline of BalanceKV section 4.2.
//   observation window -> window, max_capacity_prompt -> budget, kernel_size -> kernel
// Variants: `order` pool_then_group is how SnapKV's code and KVCache-Factory's order both steps,
// group_then_pool how kvpress does with a mean (the same for pool avg); `row_weight` visible with
// kernel 1 and pool avg is Finch (Corallo and Papotti) as kvpress 0.5.5 has it, without its chunks
// and without turning the kept keys to new positions; reduce mean ranks as sum.
// Departures: one selection per KV head (`group` says how its query heads are combined).
// Compared on the shipped dump in double precision, errors per row equal to 11 digits: kvpress
// 0.5.5 (SnapKVPress; by `tests/peers/run.sh`) and, once, KVCache-Factory c97f9d7
// (SnapKVCluster, its kv_head layout, group mean and max) and SnapKV e216ddc (one query head per KV
// head) keep the same tokens with pool avg. With pool max many scores are equal, and of those at
// the edge of the budget torch's topk keeps any, this code the earliest: there alone sets differ
// from those two codes'. In float16 KVCache-Factory keeps other tokens in up to 2 of 9 heads with
// pool avg.
#include "algorithms/mechanisms/observation_window.hpp"

namespace kvbench::methods::snapkv {
namespace {

struct Parameters : ObservationParameters {
  Parameters() { window = 32; }
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "snapkv";
  d.title = "tokens that the last prompt rows attend to, pooled";
  d.source = "SnapKV (Li et al.)";
  d.derived = ObservationWindow::derived_keys();
  d.parameters.add(observation_fields());
  d.parameters.add({group_field(&Parameters::group)});
  d.parameters.add(observation_variant_fields());
  d.validate = invalid_observation;
  d.skip_reason = cannot_observe;
  d.shared_work = observation_work;
  d.ranks = observation_parts;
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<ObservationWindow>(p, context, p.budget.of(context.prompt) - p.window);
  };
  return d;
}

}  // namespace kvbench::methods::snapkv
