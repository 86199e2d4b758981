// Dumps for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace kvbench::python {

// Adds the class Dump.
void define_dump(nanobind::module_& module);

}  // namespace kvbench::python
