// Registry look-up that a test may rely on.
#pragma once

#include <stdexcept>
#include <string>

#include "algorithms/registry.hpp"

namespace kvbench::test {

inline const AlgorithmDescription& algorithm_named(const std::string& id) {
  const AlgorithmDescription* found = find_algorithm(id);
  if (found == nullptr) throw std::runtime_error("no algorithm " + id);
  return *found;
}

}  // namespace kvbench::test
