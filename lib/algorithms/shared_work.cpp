#include "algorithms/shared_work.hpp"

#include <cxxabi.h>

#include <cstdlib>

namespace kvbench {

std::string WorkKind::name() const {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type_.name(), nullptr, nullptr, nullptr), &std::free);
  return name == nullptr ? type_.name() : name.get();
}

}  // namespace kvbench
