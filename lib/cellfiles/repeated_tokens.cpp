#include "cellfiles/repeated_tokens.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

namespace kvbench {

std::optional<RepeatedToken> repeated_token(const KeptRows& kept) {
  if (!kept.keys.empty() && !kept.values.empty()) return std::nullopt;
  std::vector<std::size_t> order(kept.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t r) {
    return std::tuple(kept.rows[r].token, kept.rows[r].begin, r);
  });
  std::map<int, std::size_t> last;  // this token's row that ends last, by query head
  int token = -1;
  for (const std::size_t r : order) {
    const KeptRow& row = kept.rows[r];
    if (row.token < 0 || row.end <= row.begin) continue;
    if (row.token != token) last.clear();
    token = row.token;
    for (const auto& [head, earlier] : last) {
      const bool is_shared = head == row.head || head == -1 || row.head == -1;
      if (is_shared && kept.rows[earlier].end > row.begin) return RepeatedToken{r, earlier};
    }
    last[row.head] = r;
  }
  return std::nullopt;
}

}  // namespace kvbench
