#include "whole_heads.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "results/summary.hpp"

using namespace kvbench;

WholeHeads whole_heads(const Plan& plan, const CellRecords& records) {
  using Head = std::pair<std::size_t, int>;  // group, KV head
  std::map<Head, bool> is_whole;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    bool& whole =
        is_whole.emplace(Head{plan.cells[c].group, plan.cells[c].kv_head}, true).first->second;
    whole = whole && records.state(c) != CellState::kMissing;
  }
  Summary summary;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (!is_whole.at({plan.cells[c].group, plan.cells[c].kv_head})) continue;
    Json record = records.read(c);
    record["label"] = plan.cells[c].label;
    summary.add(record);
  }
  const auto whole =
      std::count_if(is_whole.begin(), is_whole.end(), [](const auto& head) { return head.second; });
  return {static_cast<std::size_t>(whole), is_whole.size(), summary.json()};
}
