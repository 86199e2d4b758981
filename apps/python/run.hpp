// Sweeps for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace kvbench::python {

// Adds the functions run and merge.
void define_run(nanobind::module_& module);

}  // namespace kvbench::python
