// Methods written in Python that decide after every decode row.
#pragma once

#include "algorithms/algorithm.hpp"
#include "python/python_method.hpp"

namespace kvbench::python {

// Completes the description of a method that decides rows.
void describe_steps(const PythonMethod& method, AlgorithmDescription& description);

}  // namespace kvbench::python
