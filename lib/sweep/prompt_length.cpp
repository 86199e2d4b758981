#include "sweep/prompt_length.hpp"

#include <algorithm>

namespace kvbench {

Index default_prompt(Index tokens, Index query_rows) {
  const Index wanted = std::min<Index>(256, std::max<Index>(1, tokens / 2));
  const Index decoded = query_rows > 0 ? std::min(wanted, query_rows) : wanted;
  return tokens - decoded;
}

}  // namespace kvbench
