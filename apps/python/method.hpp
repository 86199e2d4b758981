// Methods written in Python as algorithms of the library.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "python/python_method.hpp"

namespace kvbench::python {

// The method is asked on the calling thread (interruptible.hpp), once per cell; one of a whole
// layer is replayed on the whole model, is asked once per layer, and fails layer by layer. Prompts
// are copied for it. `method` must outlive the description.
AlgorithmDescription describe_method(const PythonMethod& method);

// Methods as the Python side gives them: id, title, parameters as JSON, uses_seed, what it decides
// ("prompt", "layer" or "rows"), ask.
using Methods = std::vector<
    std::tuple<std::string, std::string, std::string, bool, std::string, nanobind::object>>;

// The library's algorithms, and these. Made and ended with the interpreter's lock.
class Algorithms {
 public:
  explicit Algorithms(const Methods& given);

  const std::vector<AlgorithmDescription>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<PythonMethod>> methods_;
  std::vector<AlgorithmDescription> all_;
};

}  // namespace kvbench::python
