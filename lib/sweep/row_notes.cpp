#include "sweep/row_notes.hpp"

#include <fmt/format.h>

namespace kvbench {

std::vector<std::string> notes_of_rows(const Plan& plan) {
  if (!plan.rows.is_object() || !plan.rows.contains("last")) return {};
  const auto last = plan.rows["last"].get<Index>();
  const WorkGroup* first = nullptr;
  std::size_t fewer = 0;
  for (const WorkGroup& group : plan.groups) {
    if (static_cast<Index>(group.rows.size()) >= last) continue;
    if (first == nullptr) first = &group;
    ++fewer;
  }
  if (first == nullptr) return {};
  const Index begin = first->shape.causal ? first->prompt : 0;
  const Index there = first->shape.tokens - begin;
  const auto scored = static_cast<Index>(first->rows.size());
  std::string why = last > there ? fmt::format("it has {} after its prompt of {}", there, begin)
                                 : fmt::format("the dump has queries only from row {} on",
                                               first->shape.first_query);
  if (last > there && !first->shape.causal) why = fmt::format("it has {} tokens", there);
  return {fmt::format(
      "/evaluate/rows/last: {} rows are asked for, and {} of {} groups have fewer; first sequence "
      "{}, layer {} of {}, of which {} are scored: {}",
      last, fewer, plan.groups.size(), first->sequence, first->layer, plan.dumps[first->dump].path,
      scored, why)};
}

}  // namespace kvbench
