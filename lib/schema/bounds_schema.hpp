// The JSON Schema of a bounds file: `kvbench schema bounds`.
#pragma once

#include "schema/parameter_schema.hpp"

namespace kvbench {

// A file that breaks it is refused; one that keeps it may still be: two bounds of one name, a range
// whose ends are the wrong way round, a baseline that is not there.
Json bounds_schema();

}  // namespace kvbench
