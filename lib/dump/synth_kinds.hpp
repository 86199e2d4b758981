// The kinds of synthetic heads.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "dump/element_type.hpp"
#include "dump/synth.hpp"
#include "dump/writer.hpp"

namespace kvbench {

// One KV head before rounding, row-major.
struct HeadData {
  std::vector<double> keys;                  // [n, d]
  std::vector<double> values;                // [n, dv]
  std::vector<std::vector<double>> queries;  // G x [Nq, d], of the last Nq positions
};

// Draws one head of options.kind. Draws of a position depend neither on the number of tokens nor on
// that of query rows, except if the kind's parameters follow from n. Throws InputError if the
// stored type cannot hold what the kind promises.
HeadData synth_head(const SynthOptions& options, const LayerLayout& layout, ElementType type,
                    const StreamId& id);

// The rotation of kind `rope`: all of d, layout "half".
RopeData synth_rope(const SynthOptions& options);

}  // namespace kvbench
