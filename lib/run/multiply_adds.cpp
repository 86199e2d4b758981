#include "run/multiply_adds.hpp"

#include <algorithm>
#include <numeric>

namespace kvbench {

double visible_tokens(const StreamShape& shape, const std::vector<Index>& rows) {
  double sum = 0.0;
  for (const Index row : rows) {
    sum += shape.visible_end(row) - shape.first_visible(row);
  }
  return sum;
}

std::vector<double> head_multiply_adds(const Plan& plan, const WorkGroup& group) {
  std::vector<double> cells(group.kv_heads, 0.0);
  plan.cells.for_each_to_run(group.cells, [&](const PlannedCell& cell, std::size_t count) {
    cells[cell.kv_head] += count;
  });
  const double heads =
      std::count_if(cells.begin(), cells.end(), [](double count) { return count > 0.0; });
  const double d = group.shape.d;
  const double dv = group.shape.dv;
  const double visible = group.shape.heads_per_kv * visible_tokens(group.shape, group.rows);
  double of_layer = 0.0;
  if (group.hidden > 0 && !group.layer_records.empty()) {
    const double query_heads = static_cast<double>(group.kv_heads) * group.shape.heads_per_kv;
    of_layer = (group.layer_records.size() + 1) * static_cast<double>(group.rows.size()) *
               query_heads * dv * group.hidden;
  }
  std::vector<double> sums;
  for (const double count : cells) {
    sums.push_back(
        count == 0.0 ? 0.0 : visible * (2.0 * d + dv) + count * visible * dv + of_layer / heads);
  }
  return sums;
}

double multiply_adds(const Plan& plan, const WorkGroup& group) {
  const std::vector<double> heads = head_multiply_adds(plan, group);
  return std::accumulate(heads.begin(), heads.end(), 0.0);
}

}  // namespace kvbench
