#include "statistical/subgen_draws.hpp"

#include "support/algorithm_named.hpp"
#include "support/stepper.hpp"
#include "support/subgen_parts.hpp"

namespace kvbench::test {

SubgenDraws library_draws(const SubgenCase& c, const std::string& sampling) {
  struct State {
    SubgenCase c;
    Params params;
    SharedResults shared;
    NaiveSubgen clusters;
  };
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  auto state = std::make_shared<State>();
  state->c = c;
  state->params = params_for(algorithm, {{"delta", Value{c.delta}},
                                         {"t", std::int64_t{c.t}},
                                         {"s", std::int64_t{c.s}},
                                         {"sampling", Value{sampling}}});
  const Index n = c.stream->shape.tokens;
  for (const SharedWork& work : algorithm.shared_work(state->params, c.stream->shape, n - 1, 0)) {
    state->shared.add(work, SharedContext{*c.stream, n - 1, cpu_kernels()});
  }
  state->clusters = naive_clusters(*c.stream, n, c.delta);
  return [state, &algorithm](std::uint32_t seed) {
    const Stream& stream = *state->c.stream;
    const Index n = stream.shape.tokens;
    const auto subgen =
        algorithm.create(state->params, {stream, n - 1, seed, cpu_kernels(), state->shared});
    subgen->extend(0, n - 1);
    subgen->finish_prompt();
    subgen->extend(n - 1, n);
    SubgenDraw out;
    out.sketch = subgen->sketch();
    const SubgenParts parts = subgen_parts(out.sketch);
    for (const WeightedToken& slot : parts.slots) out.slots.push_back(slot.token);
    out.samples.resize(state->clusters.clusters.size());
    for (const WeightedToken& sample : parts.samples) {
      const Index cluster = state->clusters.assignment[sample.token];
      out.samples[cluster].push_back(sample.token);
    }
    return out;
  };
}

SubgenDraws naive_draws(const SubgenCase& c, SubgenBug bug) {
  return [c, bug](std::uint32_t seed) {
    const NaiveSubgen state =
        naive_subgen(*c.stream, c.stream->shape.tokens, c.delta, c.t, c.s, seed, bug);
    SubgenDraw out;
    out.slots = state.slots;
    for (const NaiveSubgen::Cluster& cluster : state.clusters)
      out.samples.push_back(cluster.samples);
    out.sketch = naive_subgen_sketch(*c.stream, state, bug);
    return out;
  };
}

}  // namespace kvbench::test
