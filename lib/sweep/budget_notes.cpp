#include "sweep/budget_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <variant>

namespace kvbench {
namespace {

// Groups that have fewer tokens than a budget of a label.
struct Smaller {
  std::int64_t least_budget = std::numeric_limits<std::int64_t>::max();
  std::size_t groups = 0;
  const WorkGroup* first = nullptr;
  const WorkGroup* last = nullptr;
};

}  // namespace

std::vector<std::string> notes_of_budgets(const Plan& plan) {
  std::map<std::string, Smaller> by_label;
  for (const WorkGroup& group : plan.groups) {
    plan.cells.for_each_to_run(group.cells, [&](const PlannedCell& cell, std::size_t) {
      const Value* value = cell.params->find("budget");
      const auto* budget = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
      if (budget == nullptr || *budget <= group.shape.tokens) return;
      Smaller& smaller = by_label[*cell.label];
      smaller.least_budget = std::min(smaller.least_budget, *budget);
      if (smaller.first == nullptr) smaller.first = &group;
      if (smaller.last != &group) ++smaller.groups;
      smaller.last = &group;
    });
  }
  std::vector<std::string> notes;
  for (const auto& [label, smaller] : by_label) {
    notes.push_back(fmt::format(
        "{}: a budget of {} tokens or more leaves nothing out in {} of {} groups, which have "
        "fewer; first sequence {}, layer {} of {}, of {} tokens",
        label, smaller.least_budget, smaller.groups, plan.groups.size(), smaller.first->sequence,
        smaller.first->layer, plan.dumps[smaller.first->dump].path, smaller.first->shape.tokens));
  }
  return notes;
}

}  // namespace kvbench
