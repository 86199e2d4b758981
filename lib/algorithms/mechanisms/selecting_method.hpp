// Methods of the registry that choose the tokens of a prompt for another one, which then merges or
// fits them.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "parameters/parameter_table.hpp"

namespace kvbench {

// The description of such a method: `&methods::<id>::describe`.
using Describe = AlgorithmDescription (*)();

// The methods that may be named: each keeps at most `budget` plain tokens of one KV head's prompt,
// and decides once.
const Choices<Describe>& selecting_methods();

// One of them with its own defaults, this budget, and, unless they are 0, these first and last
// tokens that it is to keep: its `sinks`, and its `recent` or `window`.
struct SelectingMethod {
  AlgorithmDescription algorithm;
  Params params;
  bool takes_sinks = true;  // has such a parameter, or none were asked for
  bool takes_recent = true;

  SelectingMethod(Describe describe, const TokenCount& budget, const TokenCount& sinks = 0,
                  const TokenCount& recent = 0);

  // The tokens of the prompt that it keeps, ascending. Its shared work must be ready.
  std::vector<std::int32_t> tokens(const CellContext& context) const;
};

// The tokens of `range` that are not among `kept`, ascending.
std::vector<std::int32_t> tokens_without(PromptRange range, const std::vector<std::int32_t>& kept);

// Describes a method with parameters `budget` and `select` that keeps as many vectors as the
// selected one does: needs, memory and reasons to skip are those of that one.
template <class P>
void describe_as_selection(TypedAlgorithm<P>& d) {
  d.needs = [](const P& p) {
    const SelectingMethod selection(p.select, p.budget);
    return selection.algorithm.needs(selection.params);
  };
  d.randomised = [](const P& p) {
    const SelectingMethod selection(p.select, p.budget);
    return selection.algorithm.randomised(selection.params);
  };
  d.skip_reason = [](const P& p, const StreamShape& shape, Index prompt) {
    const SelectingMethod selection(p.select, p.budget);
    return selection.algorithm.skip_reason(selection.params, shape, prompt);
  };
  d.shared_work = [](const P& p, const StreamShape& shape, Index prompt, std::uint32_t seed) {
    const SelectingMethod selection(p.select, p.budget);
    return selection.algorithm.shared_work(selection.params, shape, prompt, seed);
  };
  d.most_kept = [](const P& p, const StreamShape& shape, Index prompt) {
    const SelectingMethod selection(p.select, p.budget);
    return selection.algorithm.most_kept(selection.params, shape, prompt);
  };
}

}  // namespace kvbench
