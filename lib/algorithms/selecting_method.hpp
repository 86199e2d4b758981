// Methods of the registry that choose the tokens of a prompt for another one, which then merges or
// fits them.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/parameter_table.hpp"

namespace kvbench {

// What describes such a method: `&describe_<id>`.
using Describe = AlgorithmDescription (*)();

// Those that may be named: each keeps at most `budget` plain tokens of one KV head's prompt, and
// decides once.
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

  // The tokens of the prompt that it keeps, ascending. What it names as shared work is ready.
  std::vector<std::int32_t> tokens(const CellContext& context) const;
};

}  // namespace kvbench
