// The attention outputs that a dump stores, recomputed from its queries, keys and values.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dump/dump.hpp"

namespace kvbench {

// ||z - out|| / ||out||; 0 if both are zero, infinite if only `out` is.
double relative_difference(const double* z, const double* out, Index count);

// The larger of two differences. One that cannot be computed (NaN) counts as infinite: it must not
// pass.
double larger_difference(double most, double difference);

// How far the stored outputs of a layer are from exact attention z.
struct OutputDifference {
  double most = 0.0;    // largest ||z - out|| / ||out||
  double excess = 0.0;  // largest ||z - out|| over what is allowed of its row; above 1: too far
  // The type whose rounding is allowed: the coarsest of q, k, v and `out`, and one of 16 bits that
  // holds every number of an `out` that is stored wider.
  ElementType type = ElementType::kFloat64;
  // The least-squares estimate of (scale of `out`) / (stored scale), where the type has 16 bits and
  // no tolerance is given, and its standard error. Rounding moves outputs in all directions,
  // another scale in one.
  double scale_ratio = 1.0;
  double scale_error = 0.0;
  // A scale with which the first KV head agrees, where the stored one does not.
  std::optional<double> fitting_scale;

  bool other_scale() const;
  bool agrees() const { return excess <= 1.0 && !other_scale(); }
};

// Over all query heads and the last `rows` rows of a layer. A row of norm |out| may differ by
// `tolerance` |out|. Without one: by 1e-4 |out|, by half a unit in the last place of each element
// of `out`, and by u (2 + |x|) |out|, u being the unit roundoff of `type` and x the row's largest
// logit: a model that computes in that type rounds logits, probabilities and outputs. Throws
// InputError if the layer cannot be read.
OutputDifference output_difference(const Dump& dump, const std::string& sequence,
                                   const LayerInfo& layer, Index rows,
                                   std::optional<double> tolerance = std::nullopt);

// All layers of a dump.
struct StoredOutputs {
  std::size_t compared = 0;  // layers that hold out
  double most = 0.0;         // largest ||z - out|| / ||out||
  bool agrees = true;
  ElementType type = ElementType::kFloat64;  // the coarsest whose rounding was allowed
  std::vector<std::string> scales;           // a sentence per layer that fits another scale
  std::vector<std::string> without_out;      // sequence/layer
};

// Compares every layer that holds `out`, and calls `each` with it; reads the others through. Throws
// InputError with all errors of the dump: layers that cannot be read, numbers that are not finite.
StoredOutputs compare_stored_outputs(
    const Dump& dump, std::optional<double> tolerance,
    const std::function<void(const std::string& sequence, int layer, Index rows,
                             const OutputDifference& difference)>& each);

}  // namespace kvbench
