// pyramidkv: snapkv with a budget that falls linearly from the first layer to the last; `budget` is
// the mean over layers.
//
// Source: PyramidKV (Cai et al.), a baseline of BalanceKV section 4.2.
//   B = budget - window, min = B // beta, max = 2 B - min, step = (max - min) // (L - 1)
//   layer l selects max - l step tokens; L = layers of the model, P = length of the prompt
// Where max would exceed P - window, max = P - window and min = 2 B - max; where P < 2 B every
// layer selects B. Departures: as snapkv.
// Compared as snapkv: KVCache-Factory c97f9d7 (PyramidKVCluster) has these numbers and keeps the
// same tokens, except for equal scores. kvpress 0.5.5 (PyramidKVPress) ranks as snapkv and keeps
// another number, window included: round(max - l (max - min) / (L - 1)) in real numbers with min =
// B / beta, B a part of the prompt; where min < window every layer keeps B.
#include "algorithms/mechanisms/observation_window.hpp"

namespace kvbench::methods::pyramidkv {
namespace {

struct Parameters : ObservationParameters {
  Index beta = 20;

  Parameters() { window = 8; }
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "pyramidkv";
  d.title = "snapkv with a budget that falls from layer to layer";
  d.source = "PyramidKV (Cai et al.)";
  d.derived = ObservationWindow::derived_keys();
  d.parameters.add(observation_fields());
  d.parameters.add({field("beta", &Parameters::beta,
                          "steepness: the last layer selects about 1 / beta of the mean")
                        .at_least(1)
                        .at_most(1e6),
                    group_field(&Parameters::group)});
  d.parameters.add(observation_variant_fields());
  d.validate = invalid_observation;
  d.skip_reason = cannot_observe;
  d.shared_work = observation_work;
  d.ranks = observation_parts;
  d.equal_budgets = ReplayScope::kLayer;
  d.only_appends = [](const Parameters&) { return true; };
  d.for_less_memory = "its budget is a mean over layers; give it as a number of tokens";
  d.create = [](const Parameters& p, const CellContext& context) {
    const Stream& stream = context.stream;
    return std::make_unique<ObservationWindow>(
        p, context,
        pyramid_selected(p.budget.of(context.prompt) - p.window, p.window, p.beta, stream.shape,
                         stream.id.layer, context.prompt));
  };
  return d;
}

}  // namespace kvbench::methods::pyramidkv
