#include "run/complete_heads.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace kvbench {

CompleteHeads complete_heads(const Plan& plan, const CellRecords& records) {
  using Head = std::pair<std::size_t, int>;  // group, KV head
  std::map<Head, bool> is_complete;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    bool& complete =
        is_complete.emplace(Head{plan.cells[c].group, plan.cells[c].kv_head}, true).first->second;
    complete = complete && records.state(c) != CellState::kMissing;
  }
  Summary summary(plan.tokens_vary);
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (!is_complete.at({plan.cells[c].group, plan.cells[c].kv_head})) continue;
    Json record = records.read(c);
    record["label"] = *plan.cells[c].label;
    summary.add(record);
  }
  const auto complete = std::count_if(is_complete.begin(), is_complete.end(),
                                      [](const auto& head) { return head.second; });
  return {static_cast<std::size_t>(complete), is_complete.size(), summary.means()};
}

}  // namespace kvbench
