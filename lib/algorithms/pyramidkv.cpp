// pyramidkv: snapkv with a budget that falls linearly from the first layer to the last; `budget` is
// the mean over layers.
//
// Source: PyramidKV (Cai et al.), a baseline of BalanceKV section 4.2.
//   B = budget - window, min = B // beta, max = 2 B - min, step = (max - min) // (L - 1)
//   layer l selects max - l step tokens; L = layers of the model, P = length of the prompt
// Where max would exceed P - window, max = P - window and min = 2 B - max; where P < 2 B every
// layer selects B. Departures: as snapkv.
#include <algorithm>

#include "algorithms/observation_window.hpp"

namespace kvbench {
namespace {

Index selected_in_layer(const Params& params, const StreamShape& shape, int layer, Index prompt) {
  const Index window = params.integer("window");
  const Index length = visible_prompt(shape, prompt).size();
  const Index base = params.tokens("budget", prompt) - window;
  if (length < 2 * base) return base;
  Index smallest = base / params.integer("beta");
  Index largest = 2 * base - smallest;
  if (largest >= length - window) {
    largest = length - window;
    smallest = 2 * base - largest;
  }
  const Index step = shape.n_layers > 1 ? (largest - smallest) / (shape.n_layers - 1) : 0;
  return std::max<Index>(0, largest - layer * step);
}

}  // namespace

AlgorithmDescription describe_pyramidkv() {
  AlgorithmDescription d;
  d.id = "pyramidkv";
  d.title = "snapkv with a budget that falls from layer to layer";
  d.source = "PyramidKV (Cai et al.); baseline of BalanceKV 4.2";
  d.parameters = observation_window_parameters(8);
  Parameter beta;
  beta.name = "beta";
  beta.minimum = 1;
  beta.maximum = 1e6;
  beta.fallback = Value{std::int64_t{20}};
  beta.doc = "steepness: the last layer selects about 1 / beta of the mean";
  d.parameters.insert(d.parameters.end() - 1, beta);
  describe_observation_window(d);
  d.create = [](const Setting& setting) -> std::unique_ptr<Algorithm> {
    return std::make_unique<ObservationWindow>(
        setting, selected_in_layer(setting.params, setting.stream.shape, setting.stream.id.layer,
                                   setting.prompt));
  };
  return d;
}

}  // namespace kvbench
