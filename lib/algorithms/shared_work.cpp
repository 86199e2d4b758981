#include "algorithms/shared_work.hpp"

#include <cxxabi.h>

#include <cstdlib>

namespace kvbench {

std::string WorkKey::name() const {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(kind_.name(), nullptr, nullptr, nullptr), &std::free);
  return name == nullptr ? kind_.name() : name.get();
}

}  // namespace kvbench
