// The kinds of synthetic heads.
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"
#include "hdf5/element_type.hpp"
#include "synth/options.hpp"
#include "synth/writer.hpp"

namespace kvbench {

struct SynthKind {
  std::string name;
  std::string description;  // one line
};
const std::vector<SynthKind>& synth_kinds();

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

// The output projection of one query head, [dv, hidden]: normal entries of variance 1 / (Hq dv), so
// that the layer's output is as large as its heads'.
std::vector<double> synth_wo(const SynthOptions& options, const LayerLayout& layout,
                             const std::string& sequence, int layer, Index query_head);

// Norms of a residual stream at the positions of the stored queries: from sqrt(hidden) / 2 to
// 3 sqrt(hidden) / 2.
std::vector<double> synth_residual_norms(const SynthOptions& options, const LayerLayout& layout,
                                         const std::string& sequence, int layer);

// The rotation of kind `rope`: all of d, layout "half".
RopeData synth_rope(const SynthOptions& options);

}  // namespace kvbench
