#include "algorithms/mechanisms/selecting_method.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace kvbench {

AlgorithmDescription describe_snapkv();
AlgorithmDescription describe_rkv();
AlgorithmDescription describe_knorm();
AlgorithmDescription describe_keydiff();
AlgorithmDescription describe_lagkv();
AlgorithmDescription describe_expected_attention();
AlgorithmDescription describe_curdkv();
AlgorithmDescription describe_capkv();
AlgorithmDescription describe_qfilters();

const Choices<Describe>& selecting_methods() {
  static const Choices<Describe> all = {
      {"snapkv", describe_snapkv},    {"rkv", describe_rkv},
      {"knorm", describe_knorm},      {"keydiff", describe_keydiff},
      {"lagkv", describe_lagkv},      {"expected_attention", describe_expected_attention},
      {"curdkv", describe_curdkv},    {"capkv", describe_capkv},
      {"qfilters", describe_qfilters}};
  return all;
}

SelectingMethod::SelectingMethod(Describe describe, const TokenCount& budget,
                                 const TokenCount& sinks, const TokenCount& recent)
    : algorithm(describe()), takes_sinks(sinks == 0), takes_recent(recent == 0) {
  const bool has_window = describe == describe_snapkv || describe == describe_rkv;
  const std::string last = has_window ? "window" : "recent";
  std::set<std::string> alternatives;  // to the budget
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    for (const auto& names : exclusive.alternatives) {
      alternatives.insert(names.begin(), names.end());
    }
  }
  for (const Parameter& parameter : algorithm.parameters) {
    const std::string& name = parameter.name;
    const bool is_first = name == "sinks" && sinks != 0;
    const bool is_last = name == last && recent != 0;
    Value given = is_first ? sinks.value() : recent.value();
    if (name == "budget") {
      params.set(name, budget.value());
    } else if ((is_first || is_last) && !check_value(parameter, given)) {
      params.set(name, given);
      (is_first ? takes_sinks : takes_recent) = true;
    } else if (parameter.default_value && !parameter.is_later && alternatives.count(name) == 0) {
      params.set(name, *parameter.default_value);
    }
  }
}

std::vector<std::int32_t> SelectingMethod::tokens(const CellContext& context) const {
  const auto selected = algorithm.create(params, context);
  selected->extend(0, context.prompt);
  selected->finish_prompt();
  std::vector<std::int32_t> tokens;
  for (const SketchRow& row : selected->sketch().rows()) tokens.push_back(row.token);
  return tokens;
}

std::vector<std::int32_t> tokens_without(PromptRange range, const std::vector<std::int32_t>& kept) {
  std::vector<std::int32_t> out;
  for (Index token = range.first; token < range.last; ++token) {
    if (!std::binary_search(kept.begin(), kept.end(), token)) {
      out.push_back(static_cast<std::int32_t>(token));
    }
  }
  return out;
}

}  // namespace kvbench
