// The tokens of the prompt that a method keeps.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/given.hpp"

namespace kvbench::test {

// Held at the first decode row, without the row's own token, which must be among them.
inline std::vector<Index> kept_of_prompt(const std::string& id, const Stream& stream, Index prompt,
                                         const Given& given, std::uint32_t seed = 0) {
  std::vector<Index> kept = kept_by(id, stream, prompt, given, seed).front();
  if (kept.empty() || kept.back() != prompt) throw std::logic_error("own token");
  kept.pop_back();
  return kept;
}

}  // namespace kvbench::test
