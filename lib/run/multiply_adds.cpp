#include "run/multiply_adds.hpp"

#include <set>

namespace kvbench {

double visible_tokens(const StreamShape& shape, const std::vector<Index>& rows) {
  double sum = 0.0;
  for (const Index row : rows) {
    sum += static_cast<double>(shape.visible_end(row) - shape.first_visible(row));
  }
  return sum;
}

double multiply_adds(const Plan& plan, const WorkGroup& group) {
  std::set<int> heads;
  double cells = 0.0;
  for (const std::size_t c : group.cells) {
    if (plan.cells[c].skip_reason) continue;
    heads.insert(plan.cells[c].kv_head);
    cells += 1.0;
  }
  const auto d = static_cast<double>(group.shape.d);
  const auto dv = static_cast<double>(group.shape.dv);
  const double visible = group.shape.heads_per_kv * visible_tokens(group.shape, group.rows);
  double sum = static_cast<double>(heads.size()) * visible * (2.0 * d + dv) + cells * visible * dv;
  if (group.hidden > 0 && !group.layer_records.empty()) {
    const double query_heads = static_cast<double>(group.kv_heads) * group.shape.heads_per_kv;
    sum += static_cast<double>(group.layer_records.size() + 1) *
           static_cast<double>(group.rows.size()) * query_heads * dv *
           static_cast<double>(group.hidden);
  }
  return sum;
}

}  // namespace kvbench
