// Registry look-up that a test may rely on.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "algorithms/registry.hpp"

namespace kvbench::test {

inline const AlgorithmDescription& algorithm_named(std::string_view id) {
  const AlgorithmDescription* found = find_algorithm(std::string(id));
  if (found == nullptr) throw std::runtime_error("no algorithm " + std::string(id));
  return *found;
}

}  // namespace kvbench::test
