// The attention outputs that a dump stores, recomputed from its queries, keys and values.
#pragma once

#include <string>

#include "dump/dump.hpp"

namespace kvbench {

// ||z - out|| / ||out||; 0 if both are zero, infinite if only `out` is.
double relative_difference(const double* z, const double* out, Index count);

// The larger of two differences. One that cannot be computed (NaN) counts as infinite: it must not
// pass.
double larger_difference(double most, double difference);

// The largest relative difference of exact attention and the stored outputs over all query heads
// and the last `rows` rows of a layer. Throws InputError if the layer cannot be read.
double largest_output_difference(const Dump& dump, const std::string& sequence,
                                 const LayerInfo& layer, Index rows);

// Reads every query, key and value of a layer: InputError for one that is not finite.
void read_through(const Dump& dump, const std::string& sequence, const LayerInfo& layer);

}  // namespace kvbench
