// Rows that a method in Python kept, from columns.
#pragma once

#include <nanobind/nanobind.h>

#include "core/kept_cache.hpp"

namespace kvbench::python {

// `columns`: C-contiguous arrays by name, int64 token, begin, end, head [m], float64
// weight_numerator, weight_denominator [m], key [m, d], value [m, dv]; all but token and weights
// may be missing. Throws InputError for numbers that no stream could have. `prompt`: P, from which
// every decoded token is kept, too.
KeptRows kept_rows(const nanobind::dict& columns, Index prompt);

}  // namespace kvbench::python
