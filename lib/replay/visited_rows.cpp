#include "replay/visited_rows.hpp"

#include <algorithm>

namespace kvbench {

bool visits_every_row(const Needs& needs) { return needs.row_logits && !needs.kept_tokens_only; }

std::vector<Index> visited_rows(const StreamShape& shape, Index prompt,
                                const std::vector<Index>& scored, bool every_row) {
  if (!every_row || !shape.causal) return scored;
  std::vector<Index> rows(scored.begin(), std::lower_bound(scored.begin(), scored.end(), prompt));
  for (Index i = std::max(prompt, shape.first_query); i < shape.tokens; ++i) rows.push_back(i);
  return rows;
}

}  // namespace kvbench
