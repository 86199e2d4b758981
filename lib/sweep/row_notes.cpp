#include "sweep/row_notes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sweep/scored_rows.hpp"

namespace kvbench {
namespace {

// Why a group has fewer than `last` rows to score.
std::string why_fewer(const WorkGroup& group, Index last, bool of_prompt) {
  const StreamShape& shape = group.shape;
  const Index decoded = shape.tokens - group.prompt;
  const Index there = !shape.causal ? shape.tokens : of_prompt ? group.prompt : decoded;
  if (last <= there) {
    return fmt::format("the dump has queries only from row {} on", shape.first_query);
  }
  if (!shape.causal) return fmt::format("it has {} tokens", there);
  return of_prompt ? fmt::format("its prompt has {}", there)
                   : fmt::format("it has {} after its prompt of {}", there, group.prompt);
}

}  // namespace

std::vector<std::string> notes_of_rows(const Plan& plan) {
  const bool of_prompt = means_prompt_rows(plan.rows);
  const nlohmann::json& form = of_prompt ? plan.rows["prompt"] : plan.rows;
  if (!form.is_object() || !form.contains("last")) return {};
  const auto last = form["last"].get<Index>();
  const WorkGroup* first = nullptr;
  std::size_t fewer = 0;
  for (const WorkGroup& group : plan.groups) {
    if (std::ssize(group.rows) >= last) continue;
    if (first == nullptr) first = &group;
    ++fewer;
  }
  if (first == nullptr) return {};
  return {fmt::format(
      "/evaluate/rows/{}last: {} rows are asked for, and {} of {} groups have fewer; first "
      "sequence {}, layer {} of {}, of which {} are scored: {}",
      of_prompt ? "prompt/" : "", last, fewer, plan.groups.size(), first->sequence, first->layer,
      plan.dumps[first->dump].path, first->rows.size(), why_fewer(*first, last, of_prompt))};
}

std::vector<std::string> notes_of_evidence(const Plan& plan) {
  for (const WorkGroup& group : plan.groups) {
    if (!group.evidence || !group.shape.causal) continue;
    const Index last = group.evidence->spans.back().second;
    const auto& rows = group.evidence->rows;
    const auto blind = std::find_if(rows.begin(), rows.end(), [&](Index row) {
      return row < last && std::binary_search(group.rows.begin(), group.rows.end(), row);
    });
    if (blind == rows.end()) continue;
    return {
        fmt::format("row {} of sequence {} of {} does not see its evidence up to token {}, and no "
                    "method holds what follows a row; check the evidence of the dump",
                    *blind, group.sequence, plan.dumps[group.dump].path, last)};
  }
  return {};
}

}  // namespace kvbench
